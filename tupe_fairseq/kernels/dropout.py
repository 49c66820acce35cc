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


def dropout(x: Tensor, p: float) -> Tensor:
    """F.dropout(x, p) in training mode."""
    if x.device.type == "cpu" and 0 < p < 1 and not torch.compiler.is_compiling():
        return _Dropout.apply(x, p, draw_key())
    return F.dropout(x, p)


class _Dropout(torch.autograd.Function):
    """Computes the mask again in the backward pass, which is faster than storing it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, key: int) -> Tensor:
        ctx.p = p
        ctx.key = key
        scale = 1 / (1 - rounded(p))
        kernels = native.serving(x)
        if kernels is None:
            return keep_mask(1, x.numel(), p, key).view(x.shape) * x * scale
        x = x.contiguous()
        out = torch.empty_like(x)
        pointers = (native.pointer(each, *x.shape) for each in (out, x))
        kernels.dropout(*pointers, key, threshold(p), scale, x.numel())
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        # As a function, so that the gradient has a gradient too.
        return _Dropout.apply(gradient, ctx.p, ctx.key), None, None


class Dropout(nn.Dropout):
    """nn.Dropout by `dropout`."""

    def forward(self, x: Tensor) -> Tensor:
        """Drop entries of x in training."""
        return dropout(x, self.p) if self.training else x
