"""Whether torch.export traces, by any version of torch, and refusals of torch.jit."""

from collections.abc import Callable
from typing import Any

import torch

from .errors import ConfigurationError

#: Older versions of torch fail to export some encodings, or give wrong values.
OLDEST_EXPORTER = "2.13"


def _never() -> bool:
    return False


#: Older ones cannot tell: 2.6 has no such function, 2.7 and 2.8 say so of torch.compile too.
is_exporting: Callable[[], bool] = (
    _never
    if torch.__version__ < OLDEST_EXPORTER
    else getattr(torch.compiler, "is_exporting", _never)
)


def refuse_jit() -> None:
    """Raise a ConfigurationError while torch.jit traces."""
    if torch.jit.is_tracing():
        raise ConfigurationError(
            "torch.jit.trace is not supported, because a trace is wrong for other batches: write "
            "ONNX (scripts/convert_checkpoint.py --to onnx), or use torch.export."
        )


def refuse_script() -> None:
    """Raise a ConfigurationError, since torch.jit.script cannot compile the models."""
    raise ConfigurationError(
        "torch.jit.script is not supported: write ONNX (scripts/convert_checkpoint.py --to onnx), "
        "or use torch.export."
    )


def known(condition: Any) -> bool:
    """Whether a condition on sizes holds for every length of an exported program."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(condition)
