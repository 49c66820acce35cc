"""Rotation of pairs of dimensions by tables of cosines and sines.

On GPUs a Triton kernel rotates, in one pass over memory, and its gradient is the rotation back.
Elsewhere, torch rotates. Nothing but the tables is kept for the gradient.
"""

import functools
from typing import Any

import torch
from torch import Tensor

from .native import is_transformed
from .triton_trial import unavailable

#: What the Triton kernel reads.
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def rotate(x: Tensor, cos: Tensor, sin: Tensor, halves: bool = False) -> Tensor:
    """Rotate the pairs (x, y) to (x cos − y sin, x sin + y cos).

    Args:
        x: B×H×T×D.
        cos: T×(R/2), B×1×T×(R/2) or 1×1×T×(R/2), in fp32 or wider, with R at most D. Dimensions
            from R on stay.
        sin: as cos.
        halves: whether dimension i is paired with i + R/2, and not with its neighbour.

    Returns:
        B×H×T×D, in the dtype of x.
    """
    # torch.compile fuses torch's operators; tables that are trained need their own gradient.
    by_operators = torch.compiler.is_compiling() or is_transformed()
    by_operators |= cos.requires_grad or sin.requires_grad
    if not by_operators and x.dtype in DTYPES and _has_kernel(x.device.type):
        return _by_kernel(x, cos, sin, halves, False)
    is_whole = halves and 2 * cos.size(-1) == x.size(-1)
    if is_whole and not by_operators and not torch.is_grad_enabled():
        return _in_place(x, cos, sin)
    return _by_operators(x, cos, sin, halves)


def _by_operators(x: Tensor, cos: Tensor, sin: Tensor, halves: bool) -> Tensor:
    width = 2 * cos.size(-1)
    turned = x[..., :width]
    if halves:
        first, second = turned.chunk(2, -1)
    else:
        first = turned[..., 0::2]
        second = turned[..., 1::2]
    # Few passes over memory, which take most of the time.
    turned_first = torch.addcmul(first * cos, second, sin, value=-1)
    turned_second = torch.addcmul(first * sin, second, cos)
    if halves:
        turned = torch.cat((turned_first, turned_second), -1).type_as(x)
    else:
        turned = torch.stack((turned_first, turned_second), -1).flatten(-2).type_as(x)
    return turned if width == x.size(-1) else torch.cat((turned, x[..., width:]), -1)


def _in_place(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate all dimensions by halves, without a gradient: no half is copied."""
    batch, heads, length, width = x.shape
    out = cos.new_empty(batch, length, heads, width).transpose(1, 2)
    first, second = x.chunk(2, -1)
    turned_first, turned_second = out.chunk(2, -1)
    torch.mul(first, cos, out=turned_first).addcmul_(second, sin, value=-1)
    torch.mul(first, sin, out=turned_second).addcmul_(second, cos)
    return out.type_as(x)


@functools.cache
def _has_kernel(device: str) -> bool:
    """Whether a Triton kernel rotates on this type of device; CPUs interpret it in tests alone."""
    return device != "cpu" and unavailable(device) is None


@torch.library.custom_op("tupe_fairseq::rotate", mutates_args=())
def _by_kernel(x: Tensor, cos: Tensor, sin: Tensor, halves: bool, back: bool) -> Tensor:
    """As `rotate`, or with `back` the inverse; in memory, a token's heads are side by side."""
    from .triton_rotation import launch

    out = _like(x)
    # Triton launches on the current GPU, which need not be that of x.
    with torch.cuda.device_of(x):
        launch(x, cos, sin, out, halves, back)
    return out


@_by_kernel.register_fake
def _like(x: Tensor, *_: Any) -> Tensor:
    batch, heads, length, width = x.shape
    return x.new_empty(batch, length, heads, width).transpose(1, 2)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, cos, sin, halves, back = inputs
    ctx.save_for_backward(cos, sin)
    ctx.how = halves, back


def _gradient(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    halves, back = ctx.how
    return _by_kernel(gradient, *ctx.saved_tensors, halves, not back), *(None,) * 4


_by_kernel.register_autograd(_gradient, setup_context=_keep)
