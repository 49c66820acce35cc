"""Dropout whose masks cost little on a CPU.

torch draws every entry of a mask from one serial generator, which takes a third of a training step
on a CPU. Here the generator gives one 64-bit key per mask, and the entries are 16-bit pieces of a
counter-based generator (Salmon et al. 2011) with that key: SplitMix64 (Steele et al. 2014), on all
cores. Same seed, same mask; the probability is rounded to a multiple of 1/65536.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .native import kernels


def _signed(bits: int) -> int:
    """The 64 bits as the integer that torch.int64 stores them in."""
    bits &= (1 << 64) - 1
    return bits - (1 << 64) if bits >> 63 else bits


# SplitMix64: the step of the counter; shifts, and the multipliers between them.
STEP = 0x9E3779B97F4A7C15
MIXING = ((30, _signed(0xBF58476D1CE4E5B9)), (27, _signed(0x94D049BB133111EB)), (31, None))
#: Entries per 64-bit word, of 16 bits each.
PIECES = 4
LEVELS = 1 << 16


def rounded(p: float) -> float:
    """The probability that masks have; below 1, which would leave nothing to scale."""
    return min(round(p * LEVELS), LEVELS - 1) / LEVELS


def threshold(p: float) -> int:
    """The smallest 16-bit piece, from −32768 on, of an entry that is kept."""
    return int(rounded(p) * LEVELS) - LEVELS // 2


def draw_key() -> int:
    """The key of a mask, from torch's generator."""
    return int(torch.empty((), dtype=torch.int64).random_())


def keep_mask(rows: int, columns: int, p: float, key: int, first: int = 0) -> Tensor:
    """True where kept, rows×columns.

    Args:
        rows: each begins with a word of its own.
        columns: entries of a row.
        p: probability of being dropped, below 1.
        key: from `draw_key`.
        first: words of the key to leave out, which served other masks.
    """
    words = -(-columns // PIECES)
    bits = torch.arange(first, first + rows * words).mul_(_signed(STEP)).add_(_signed(key))
    shifted = torch.empty_like(bits)
    for shift, multiplier in MIXING:
        torch.bitwise_right_shift(bits, shift, out=shifted)
        # The shift repeats the sign, which does not belong there.
        bits.bitwise_xor_(shifted.bitwise_and_((1 << (64 - shift)) - 1))
        if multiplier is not None:
            bits.mul_(multiplier)
    return bits.view(torch.int16).view(rows, -1)[:, :columns] >= threshold(p)


def dropout(x: Tensor, p: float, residual: Tensor | None = None) -> Tensor:
    """F.dropout(x, p), added to `residual`, of the same shape, where given."""
    if x.device.type == "cpu" and 0 < p < 1 and not torch.compiler.is_compiling():
        return _Dropout.apply(x, residual, p, draw_key())
    dropped = F.dropout(x, p)
    return dropped if residual is None else residual + dropped


class _Dropout(torch.autograd.Function):
    """The mask is made again for the backward pass: that is faster than to keep it."""

    @staticmethod
    def forward(ctx, x, residual, p, key):
        ctx.p, ctx.key, ctx.dtype = p, key, x.dtype
        return _dropped(x, residual, p, key)

    @staticmethod
    def backward(ctx, gradient):
        of_x = _dropped(gradient, None, ctx.p, ctx.key).to(ctx.dtype)
        return of_x, gradient if ctx.needs_input_grad[1] else None, None, None


def _dropped(x: Tensor, residual: Tensor | None, p: float, key: int) -> Tensor:
    scale, native = 1 / (1 - rounded(p)), kernels()
    inputs = (x,) if residual is None else (x, residual)
    if native is not None and all(i.dtype == torch.float32 for i in inputs):
        inputs = [i.contiguous() for i in inputs]
        out = torch.empty_like(inputs[0])
        pointers = [i.data_ptr() for i in (out, *inputs)] + [None] * (2 - len(inputs))
        native.dropout(*pointers, key, threshold(p), scale, x.numel())
        return out
    kept = keep_mask(1, x.numel(), p, key).view(x.shape) * x * scale
    return kept if residual is None else residual + kept


class Dropout(nn.Dropout):
    """nn.Dropout, fast on CPU, and able to add a residual in the same pass."""

    @property
    def acts(self) -> bool:
        """Whether anything is dropped now."""
        return self.training and self.p > 0

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """Entries of x dropped in training, plus residual, of the same shape, where given."""
        if self.acts:
            return dropout(x, self.p, residual)
        return x if residual is None else residual + x
