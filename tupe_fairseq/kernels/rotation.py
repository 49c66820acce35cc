"""Rotation of pairs of dimensions by tables of cosines and sines.

The gradient of a rotation is the rotation back, so nothing but the tables is kept for it. On GPUs
a Triton kernel rotates, in one pass over memory, and elsewhere torch.
"""

import functools
from typing import Any

import torch
from torch import Tensor

from .native import is_transformed
from .triton_attention import unavailable

#: What the Triton kernel reads.
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def rotate(x: Tensor, cos: Tensor, sin: Tensor, halves: bool = False) -> Tensor:
    """Rotate the pairs (x, y) to (x cos − y sin, x sin + y cos).

    Args:
        x: B×H×T×D.
        cos: T×(R/2) or B×1×T×(R/2), in fp32 or wider, with R at most D. Dimensions from R on stay.
        sin: as cos.
        halves: whether dimension i is paired with i + R/2, and not with its neighbour.

    Returns:
        B×H×T×D, in the dtype of x.
    """
    # torch.compile fuses torch's operators; tables that are trained need their own gradient. On
    # CPUs without gradients, a Function would do nothing but take time.
    by_operators = torch.compiler.is_compiling() or is_transformed()
    by_operators |= x.is_cpu and not torch.is_grad_enabled()
    if by_operators or cos.requires_grad or sin.requires_grad:
        return _by_operators(x, cos, sin, halves, False)
    return _Rotation.apply(x, cos, sin, halves, False)


class _Rotation(torch.autograd.Function):
    """A rotation, or with `back` the inverse one; its gradient has a gradient too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, halves: bool, back: bool) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.how = halves, back
        if _has_kernel(x.device.type) and x.dtype in DTYPES:
            return _by_kernel(x, cos, sin, halves, back)
        return _by_operators(x, cos, sin, halves, back)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        halves, back = ctx.how
        return _Rotation.apply(gradient, *ctx.saved_tensors, halves, not back), *(None,) * 4


def _by_operators(x: Tensor, cos: Tensor, sin: Tensor, halves: bool, back: bool) -> Tensor:
    width = 2 * cos.size(-1)
    turned = x[..., :width]
    if halves:
        first, second = turned.chunk(2, -1)
    else:
        first = turned[..., 0::2]
        second = turned[..., 1::2]
    first, second = (_back if back else _forth)(first, second, cos, sin)
    if halves:
        turned = torch.cat((first, second), -1).type_as(x)
    else:
        turned = torch.stack((first, second), -1).flatten(-2).type_as(x)
    return turned if width == x.size(-1) else torch.cat((turned, x[..., width:]), -1)


def _forth(x: Tensor, y: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """The points (x, y), rotated, in the dtype of the tables.

    Few passes over memory, which take most of the time.
    """
    return torch.addcmul(x * cos, y, sin, value=-1), torch.addcmul(x * sin, y, cos)


def _back(x: Tensor, y: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """The points (x, y), rotated back; products are rounded as in autograd's gradient."""
    of_x, of_y = ([(part * table).type_as(x) for table in (cos, sin)] for part in (x, y))
    return of_x[0] + of_y[1], of_y[0] - of_x[1]


@functools.cache
def _has_kernel(device: str) -> bool:
    """Whether a Triton kernel rotates on this type of device; CPUs interpret it in tests alone."""
    return device != "cpu" and unavailable(device) is None


@torch.library.custom_op("tupe_fairseq::rotate", mutates_args=())
def _by_kernel(x: Tensor, cos: Tensor, sin: Tensor, halves: bool, back: bool) -> Tensor:
    """As `rotate`, without a gradient; in memory, the heads of a token are side by side."""
    from .triton_rotation import launch

    out = _like(x)
    launch(x, cos, sin, out, halves, back)
    return out


@_by_kernel.register_fake
def _like(x: Tensor, *_: Any) -> Tensor:
    batch, heads, length, width = x.shape
    return x.new_empty(batch, length, heads, width).transpose(1, 2)
