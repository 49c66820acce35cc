"""The dtypes that sums over scores, tables and modules are computed in."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

#: Half precision.
HALF = (torch.float16, torch.bfloat16)


def widened(dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums over scores and tables: fp32 for half precision, otherwise unchanged."""
    return torch.promote_types(dtype, torch.float32)


def dtype_of(module: nn.Module) -> torch.dtype:
    """What a module computes in: fp32 unless its parameters are in another floating-point type."""
    dtypes = (p.dtype for p in module.parameters() if p.is_floating_point())
    return next(dtypes, torch.float32)


def affine(module: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Weight, O×I, and bias, O, of a module that computes x Wᵀ + b; in the dtype of x, I.

    The module is called, not read, so that adapters, hooks and quantised weights take part.
    """
    unit = torch.eye(len(x) + 1, len(x), device=x.device, dtype=dtype_of(module))
    out = module(unit).to(x.dtype)
    return (out[:-1] - out[-1]).t(), out[-1]


def without_autocast(device: str) -> AbstractContextManager:
    """A context in which this type of device computes in the dtypes of its inputs."""
    available = torch.amp.is_autocast_available(device)
    return torch.autocast(device, enabled=False) if available else nullcontext()
