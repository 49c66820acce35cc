"""The end of a post-LN block: LayerNorm of a sum."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from . import native
from .linear import is_plain


def add_and_normalise(x: Tensor, residual: Tensor, norm: nn.LayerNorm) -> Tensor:
    """Compute norm(x + residual) over C, both N×C or B×T×C.

    On CPUs this takes one pass over memory where no gradient is needed.
    """
    tensors = (x, residual, norm.weight, norm.bias)
    is_served = is_plain(norm, nn.LayerNorm) and norm.bias is not None and x.numel() > 0
    is_served = is_served and not torch.is_grad_enabled()
    kernels = native.serving(*tensors) if is_served else None
    if kernels is None:
        return norm(residual + x)
    inputs = [tensor.contiguous() for tensor in tensors]
    out = torch.empty_like(inputs[0])
    shapes = (x.shape, x.shape, x.shape, x.shape[-1:], x.shape[-1:])
    given = zip((out, *inputs), shapes, strict=True)
    pointers = [native.pointer(tensor, *shape) for tensor, shape in given]
    kernels.add_layer_norm(*pointers, norm.eps, x.numel() // x.size(-1), x.size(-1))
    return out


def set_epsilon(model: nn.Module, epsilon: float) -> None:
    """Set what all LayerNorms of a model add to variances."""
    norms: Iterator[Any] = model.modules()
    for norm in norms:
        if hasattr(norm, "normalized_shape"):
            norm.eps = epsilon
