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
import threading
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from fairseq.distributed.utils import _TensorPlaceholder
from omegaconf import DictConfig, ListConfig, nodes
from omegaconf.base import ContainerMetadata, Metadata
from omegaconf.errors import OmegaConfBaseException

from ...base.errors import CheckpointError
from .safe_numpy import NUMPY_GLOBALS
from .torch_files import read_file

#: Plain data: rebuilding one from a pickle only sets its attributes. A pair is a class or function
#: and the name in the pickle in whose place it is used.
CHECKPOINT_GLOBALS: list[typing.Any] = [
    # Settings given on the command line; `args` of old checkpoints.
    argparse.Namespace,
    # Settings as a tree: `cfg`.
    DictConfig,
    ListConfig,
    ContainerMetadata,
    Metadata,
    nodes.AnyNode,
    nodes.BooleanNode,
    nodes.EnumNode,
    nodes.FloatNode,
    nodes.IntegerNode,
    nodes.StringNode,
    # Types that nodes of the tree refer to.
    typing.Any,
    int,
    list,
    dict,
    collections.defaultdict,
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
    with safe_checkpoint_globals():
        state = read_file(path)
    _check_form(state, path)
    return state


def _check_form(state: typing.Any, path: str | Path) -> None:
    if not isinstance(state, dict) or "model" not in state:
        raise CheckpointError(f"{path} is not a fairseq checkpoint: it has no entry 'model'.")
    history = state.get("optimizer_history") or []
    if not isinstance(history, list) or not all(isinstance(each, dict) for each in history):
        raise CheckpointError(
            f"{path} is not a fairseq checkpoint: its optimizer_history is not a list of "
            "dictionaries."
        )


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
