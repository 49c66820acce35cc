"""Whether layers run through torch.compile where the user has not said so."""

import functools
import logging
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ..kernels.native import find_compiler

logger = logging.getLogger(__name__)

#: Types of device on which compiled layers have been measured to be faster.
FASTER_ON = ("cuda",)
#: Where modules keep their hooks.
HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def decide(layers: Iterable[Any], device: str, reason: str | None) -> bool:
    """Whether to compile these layers on this type of device, told in one line of the log.

    `reason` is one that the caller knows against it, or None.
    """
    reason = reason or _obstacle(layers) or fault(device)
    if reason is None:
        logger.info(
            "the layers run through torch.compile, so that the first passes take longer; "
            "--no-compile-layers switches this off"
        )
    else:
        logger.info(f"the layers do not run through torch.compile: {reason}")
    return reason is None


def _obstacle(layers: Iterable[Any]) -> str | None:
    """What a compiler would have to see of the layers that may change between passes, or None."""
    for layer in layers:
        if hasattr(layer, "module"):
            return "they are wrapped, as by --ddp-backend fully_sharded"
        if any(getattr(module, name) for module in layer.modules() for name in HOOKS):
            return "they have hooks, as by --quant-noise-pq"
    return None


@functools.cache
def fault(device: str) -> str | None:
    """Why torch.compile does not work on this type of device, or None: tried once."""
    if find_compiler() is None:
        return "there is no C compiler"
    try:
        torch.compile(_tried)(torch.ones(8, device=device))
    # All that torch raises here; its message may have several lines.
    except RuntimeError as error:
        return str(error).strip().partition("\n")[0] or type(error).__name__
    return None


def _tried(x: Tensor) -> Tensor:
    return x.sin() * 2
