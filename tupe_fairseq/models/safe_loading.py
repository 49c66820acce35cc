"""What a fairseq checkpoint may hold besides tensors, so that torch loads it with weights_only.

torch's safe loader refuses every class that is not listed, and with it checkpoints that would run
code. A fairseq checkpoint holds settings and meters; these are all the classes it needs for them.
"""

from __future__ import annotations

import argparse
import collections
import typing

import numpy as np
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

#: Each is plain data: rebuilding one from a pickle runs nothing but its own state setting.
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
    np.ndarray,
    np.dtype,
    np.dtypes.Float64DType,
    np.dtypes.Float32DType,
    np.dtypes.Int64DType,
    np._core.multiarray.scalar,
    np._core.multiarray._reconstruct,
    # What several ranks exchange when one reads the checkpoint for all.
    _TensorPlaceholder,
]

torch.serialization.add_safe_globals(CHECKPOINT_GLOBALS)
