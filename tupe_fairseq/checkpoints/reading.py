"""Read fairseq checkpoints with `torch.load(weights_only=True)`, which runs no code from the file.

torch refuses every class that is not in its list of safe globals. A fairseq checkpoint also holds
settings and meters; `CHECKPOINT_GLOBALS` are the classes they need. torch has one list for the
whole process, and importing this package leaves it as it is:

- `read_checkpoint` and `from_pretrained` extend the list while they load.
- fairseq's commands load checkpoints at any time, so for them the list is extended once.
- In Python, wrap fairseq's own loaders::

      with safe_checkpoint_globals():
          models, cfg, task = checkpoint_utils.load_model_ensemble_and_task([path])
"""

from __future__ import annotations

import argparse
import collections
import pickle
import re
import threading
import typing
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import omegaconf
import torch
from fairseq.distributed.utils import _TensorPlaceholder
from omegaconf.base import ContainerMetadata, Metadata
from omegaconf.nodes import (
    AnyNode,
    BooleanNode,
    EnumNode,
    FloatNode,
    IntegerNode,
    StringNode,
)

from ..errors import UsageError
from .safe_numpy import NUMPY_GLOBALS

#: Each is plain data: rebuilding one from a pickle runs nothing but its own state setting. A pair
#: is a class or function, and the name in whose place it is taken.
CHECKPOINT_GLOBALS: list[typing.Any] = [
    # Settings given on the command line; `args` of old checkpoints.
    argparse.Namespace,
    # Settings as a tree: `cfg`.
    omegaconf.DictConfig,
    omegaconf.ListConfig,
    ContainerMetadata,
    Metadata,
    AnyNode,
    BooleanNode,
    EnumNode,
    FloatNode,
    IntegerNode,
    StringNode,
    # The types which those nodes name.
    typing.Any,
    int,
    list,
    dict,
    collections.defaultdict,
    # Validation losses and meters, which are numpy scalars and arrays.
    *NUMPY_GLOBALS,
    # What several ranks exchange when one reads the checkpoint for all.
    _TensorPlaceholder,
]

#: Guards the two below. `_open_blocks`: blocks of `safe_checkpoint_globals` open in all threads;
#: `_added`: removes from torch's list what the first of them has added.
_lock = threading.Lock()
_open_blocks = 0
_added = ExitStack()


@contextmanager
def safe_checkpoint_globals() -> Iterator[None]:
    """Let `torch.load` accept the classes of fairseq checkpoints inside a `with` block.

    Blocks may be nested and may be open in several threads; torch's list is as before when the
    last one ends. The list belongs to the process: while a block is open, `torch.load` accepts
    these classes in all threads. What other code adds to the list meanwhile stays, unless it is
    added in another thread in the very moment in which a block begins or ends (torch does not
    lock its list).
    """
    global _open_blocks
    with _lock:
        if not _open_blocks:
            known = torch.serialization.get_safe_globals()
            missing = [entry for entry in CHECKPOINT_GLOBALS if entry not in known]
            _added.enter_context(torch.serialization.safe_globals(missing))
        _open_blocks += 1
    try:
        yield
    finally:
        with _lock:
            _open_blocks -= 1
            if not _open_blocks:
                _added.close()


def add_safe_checkpoint_globals() -> None:
    """Let `torch.load` accept the classes of fairseq checkpoints from now on, in all threads.

    For processes that run a command of fairseq, which reads checkpoints with its own code.
    """
    with _lock:
        # Blocks that are open must not remove anything when they end.
        _added.pop_all()
        torch.serialization.add_safe_globals(CHECKPOINT_GLOBALS)


def read_checkpoint(path: str | Path) -> dict[str, typing.Any]:
    """Read a checkpoint without running anything it may hold; tensors are mapped, not read.

    So one that holds Adam's state costs little to look at. Copy what is to outlast the call: a
    process that reads a mapped tensor after the file was overwritten in place (by `torch.save` to
    the same path, or by fairseq's copies) ends with a bus error.

    Raises:
        UsageError: the file is no checkpoint, is damaged, or holds classes that are not listed.
    """
    try:
        # Only today's zip format can be mapped; torch still reads the older one.
        mapped = zipfile.is_zipfile(path)
        with safe_checkpoint_globals():
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        culprit = re.search(r"GLOBAL ([\w.]+)", str(error))
        if culprit is None:
            raise UsageError(f"{path} is no checkpoint, or is damaged.") from error
        raise UsageError(
            f"{path} is refused: it holds {culprit[1]}, which is no tensor or setting and could "
            "run code."
        ) from error
    except FileNotFoundError as error:
        raise UsageError(f"there is no file {path}.") from error
    # What torch's reader makes of bytes that mean nothing can be any error at all.
    except Exception as error:
        raise UsageError(f"{path} is no checkpoint, or is damaged.") from error
    if not isinstance(state, dict) or "model" not in state:
        raise UsageError(f"{path} is no fairseq checkpoint: it has no entry 'model'.")
    return state
