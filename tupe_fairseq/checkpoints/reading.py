"""Read fairseq checkpoints with `torch.load(weights_only=True)`, which runs no code from the file.

torch loads no class that is not in its list of safe globals. A fairseq checkpoint also holds
settings and meters; `CHECKPOINT_GLOBALS` are the classes they need. torch has one list for the
whole process, and importing this package leaves it as it is:

- `read_checkpoint` and `from_pretrained` extend the list while they load.
- fairseq's commands load checkpoints at any time, so for them the list is extended once.
- In Python, wrap fairseq's own loaders::

      with safe_checkpoint_globals():
          models, cfg, task = checkpoint_utils.load_model_ensemble_and_task([path])

`recorded_settings` are a checkpoint's settings, in today's form or in an older one.
"""

import argparse
import collections
import errno
import pickle
import re
import threading
import typing
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from fairseq.distributed.utils import _TensorPlaceholder
from omegaconf import DictConfig, ListConfig, nodes
from omegaconf.base import ContainerMetadata, Metadata
from omegaconf.errors import OmegaConfBaseException

from ..errors import CheckpointError, UsageError
from .safe_numpy import NUMPY_GLOBALS

#: Plain data: rebuilding one from a pickle only sets its attributes. A pair is a class or function
#: and the name in the pickle in whose place it is used.
CHECKPOINT_GLOBALS: list[typing.Any] = [
    # Settings given on the command line; `args` of old checkpoints.
    argparse.Namespace,
    # Settings as a tree: `cfg`.
    *(DictConfig, ListConfig, ContainerMetadata, Metadata),
    *(nodes.AnyNode, nodes.BooleanNode, nodes.EnumNode),
    *(nodes.FloatNode, nodes.IntegerNode, nodes.StringNode),
    # Types that nodes of the tree refer to.
    *(typing.Any, int, list, dict, collections.defaultdict),
    # Validation losses and meters: numpy scalars and arrays.
    *NUMPY_GLOBALS,
    # Exchanged by ranks when one reads the checkpoint for all.
    _TensorPlaceholder,
]

#: Held by the thread that has extended torch's list; it may open further blocks.
_lock = threading.RLock()


@contextmanager
def safe_checkpoint_globals() -> Iterator[None]:
    """Let `torch.load` accept the classes of fairseq checkpoints inside a `with` block.

    At its end, these classes are removed from torch's list, except those that were listed before.
    The list belongs to the process: while a block is open, `torch.load` accepts these classes in
    all threads. Blocks may be nested. A block in another thread waits until the first has ended.
    """
    with _lock:
        known = torch.serialization.get_safe_globals()
        missing = [entry for entry in CHECKPOINT_GLOBALS if entry not in known]
        with torch.serialization.safe_globals(missing):
            yield


def add_safe_checkpoint_globals() -> None:
    """Let `torch.load` accept the classes of fairseq checkpoints from now on, in all threads.

    For processes that run a command of fairseq, which reads checkpoints by its own code.
    """
    torch.serialization.add_safe_globals(CHECKPOINT_GLOBALS)


def read_checkpoint(path: str | Path) -> dict[str, typing.Any]:
    """Read a checkpoint of fairseq, as `read_file`.

    Raises:
        CheckpointError: it is not a fairseq checkpoint, or as `read_file`.
        UsageError: the file cannot be read, though it may be whole.
    """
    state = read_file(path)
    _check_form(state, path)
    return state


def read_file(path: str | Path) -> typing.Any:
    """Read what `torch.save` has written. No code in it is run; tensors are mapped into memory.

    Reading the settings of a checkpoint that also holds Adam's state is therefore cheap. Copy
    tensors that are needed later: a process that reads a mapped tensor after the file was
    overwritten in place (by `torch.save` to the same path, or by fairseq's copies) ends with a bus
    error.

    Raises:
        CheckpointError: there is no such file, it is damaged, or it holds classes that are not
            listed.
        UsageError: the file cannot be read, though it may be whole.
    """
    try:
        # torch also reads its format of before 1.6, but can map the zip format only.
        mapped = zipfile.is_zipfile(path)
        with safe_checkpoint_globals():
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        culprit = re.search(r"GLOBAL ([\w.]+)", str(error))
        if culprit is None:
            raise _unreadable(path) from error
        raise CheckpointError(
            f"{path} cannot be loaded: it holds {culprit[1]}, which is not a tensor or a setting "
            "and could run code."
        ) from error
    except FileNotFoundError as error:
        raise CheckpointError(f"there is no file {path}.") from error
    except MemoryError:
        raise
    except OSError as error:
        # torch's reader also raises EINVAL, or no number, for a damaged file.
        if error.errno in (None, errno.EINVAL):
            raise _unreadable(path) from error
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    # torch's reader raises errors of any type for a damaged file.
    except Exception as error:
        raise _unreadable(path) from error


def _check_form(state: typing.Any, path: str | Path) -> None:
    if not isinstance(state, dict) or "model" not in state:
        raise CheckpointError(f"{path} is not a fairseq checkpoint: it has no entry 'model'.")
    history = state.get("optimizer_history") or []
    if not isinstance(history, list) or not all(isinstance(each, dict) for each in history):
        raise CheckpointError(
            f"{path} is not a fairseq checkpoint: its optimizer_history is not a list of "
            "dictionaries."
        )


def _unreadable(path: str | Path) -> CheckpointError:
    return CheckpointError(f"{path} cannot be loaded: it is not a checkpoint, or is damaged.")


def recorded_settings(
    state: Mapping[str, typing.Any], group: str, source: object
) -> dict[str, typing.Any]:
    """One group of a checkpoint's settings: "model", "task", "distributed_training", ...

    Raises:
        CheckpointError: the settings of `source` are not a table of names and values.
    """
    # Until 2020 fairseq recorded `args`, a flat Namespace. Since then it records `cfg`, a tree
    # whose branches may be Namespaces.
    settings = state.get("args")
    if settings is None:
        settings = _as_dict(state.get("cfg"), source).get(group)
    return _as_dict(settings, source)


def _as_dict(settings: typing.Any, source: object) -> dict[str, typing.Any]:
    try:
        if settings is None:
            return {}
        return dict(vars(settings) if isinstance(settings, argparse.Namespace) else settings)
    except (TypeError, ValueError, OmegaConfBaseException) as error:
        raise CheckpointError(
            f"{source} cannot be loaded: its settings are not a table of names and values."
        ) from error
