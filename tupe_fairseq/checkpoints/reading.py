"""What a fairseq checkpoint may hold besides tensors, so that torch loads it with weights_only.

torch's safe loader refuses every class that is not listed, and with it checkpoints that would run
code. A fairseq checkpoint holds settings and meters; these are all the classes it needs for them.
"""

from __future__ import annotations

import argparse
import collections
import pickle
import re
import typing
import zipfile
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
        state = torch.load(
            path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
        )
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
