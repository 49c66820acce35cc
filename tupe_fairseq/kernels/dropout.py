"""Dropout with masks from `random_bits` on CPUs, and torch's own dropout elsewhere.

The same seed gives the same mask, with and without the C kernels. The probability is rounded to a
multiple of 1/65536.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import native
from .random_bits import draw_key, keep_mask, rounded, threshold


def dropout(x: Tensor, p: float, residual: Tensor | None = None) -> Tensor:
    """F.dropout(x, p) in training mode, plus ``residual``, of the same shape, where given."""
    if x.device.type == "cpu" and 0 < p < 1 and not torch.compiler.is_compiling():
        return _Dropout.apply(x, residual, p, draw_key())
    dropped = F.dropout(x, p)
    return dropped if residual is None else residual + dropped


class _Dropout(torch.autograd.Function):
    """Computes the mask again in the backward pass, which is faster than storing it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, residual: Tensor | None, p: float, key: int) -> Tensor:
        ctx.p, ctx.key, ctx.dtype = p, key, x.dtype
        return _dropped(x, residual, p, key)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        # As a function, so that the gradient has a gradient too.
        grad_x = _Dropout.apply(gradient, None, ctx.p, ctx.key).to(ctx.dtype)
        return grad_x, gradient if ctx.needs_input_grad[1] else None, None, None


def _dropped(x: Tensor, residual: Tensor | None, p: float, key: int) -> Tensor:
    scale, inputs = 1 / (1 - rounded(p)), [x] if residual is None else [x, residual]
    if (kernels := native.serving(*inputs)) is not None:
        inputs = [i.contiguous() for i in inputs]
        out = torch.empty_like(inputs[0])
        pointers = (native.pointer(i, *x.shape) for i in (out, *inputs))
        none = [None] * (2 - len(inputs))
        kernels.dropout(*pointers, *none, key, threshold(p), scale, x.numel())
        return out
    kept = keep_mask(1, x.numel(), p, key).view(x.shape) * x * scale
    return kept if residual is None else residual + kept


class Dropout(nn.Dropout):
    """nn.Dropout that can add a residual in the same pass over memory."""

    @property
    def is_active(self) -> bool:
        """Whether the module is in training mode with p > 0."""
        return self.training and self.p > 0

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """Drop entries of x in training, then add ``residual``, of the same shape, where given."""
        if self.is_active:
            return dropout(x, self.p, residual)
        return x if residual is None else residual + x
