"""What happens to a block of scores between the two products of attention.

Each function has a twin in native/kernels.c, for fp32, that does it in one pass.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor

from . import native
from .dropout import PIECES, keep_mask, rounded, threshold


@dataclass(frozen=True)
class Terms:
    """What acts on a block of scores, M×R×S.

    Attributes:
        bias: G×R×S, added, the first to the first M/G matrices and so on; its last dimension is
            contiguous. Or None.
        padding: P×1×S, added, to every P-th matrix the same. Or None.
        p: probability of dropping a weight.
        key: of the dropout mask.
        first: words of the key that other blocks have taken.
    """

    bias: Tensor | None = None
    padding: Tensor | None = None
    p: float = 0.0
    key: int = 0
    first: int = 0

    @property
    def scale(self) -> float:
        """Of the weights that are kept."""
        return 1 / (1 - rounded(self.p))

    def in_c(self, matrices: int) -> native.Terms:
        """The same for the kernels."""
        found = native.Terms(
            key=self.key,
            first=self.first,
            threshold=threshold(self.p),
            drops=self.p > 0,
            scale=self.scale,
        )
        if (bias := self.bias) is not None:
            found.bias, found.bias_shared_by = bias.data_ptr(), matrices // len(bias)
            found.bias_matrix, found.bias_row, _ = bias.stride()
        if (padding := self.padding) is not None:
            found.padding, found.paddings = padding.data_ptr(), len(padding)
            found.padding_matrix = padding.stride(0)
        return found


def words(rows: int, columns: int) -> int:
    """Words of random bits that the mask of so many rows takes."""
    return rows * -(-columns // PIECES)


def weigh(scores: Tensor, terms: Terms) -> None:
    """Turn scores into dropout(softmax(scores + bias + padding)), in place."""
    kernels = native.kernels()
    if kernels is not None and scores.dtype == torch.float32:
        kernels.weigh(scores.data_ptr(), ctypes.byref(terms.in_c(len(scores))), *scores.shape)
        return
    torch.mul(_softmax(scores, terms), _scales(scores, terms), out=scores)


def weigh_backward(
    scores: Tensor, of_dropped: Tensor, of_bias: Tensor | None, terms: Terms
) -> None:
    """The gradient of `weigh`, in place.

    Args:
        scores: what `weigh` was given; becomes what `weigh` gave.
        of_dropped: gradient of what it gave; becomes the gradient of the scores.
        of_bias: gradient of the bias, with its shape and strides, which is added to; or None.
        terms: what `weigh` was given.
    """
    kernels = native.kernels()
    if kernels is not None and scores.dtype == torch.float32:
        pointers = (scores.data_ptr(), of_dropped.data_ptr())
        bias = None if of_bias is None else of_bias.data_ptr()
        kernels.weigh_backward(
            *pointers, bias, ctypes.byref(terms.in_c(len(scores))), *scores.shape
        )
        return
    weights, scales = _softmax(scores, terms), _scales(scores, terms)
    torch.mul(weights, scales, out=scores)
    of_weights = of_dropped * scales
    torch.mul(weights, of_weights - (weights * of_weights).sum(-1, keepdim=True), out=of_dropped)
    if of_bias is not None:
        of_bias += of_dropped.unflatten(0, (len(of_bias), -1)).sum(1)


def _softmax(scores: Tensor, terms: Terms) -> Tensor:
    matrices = len(scores)
    if terms.bias is not None:
        scores = scores + terms.bias.repeat_interleave(matrices // len(terms.bias), 0)
    if terms.padding is not None:
        scores = scores + terms.padding.repeat(matrices // len(terms.padding), 1, 1)
    return scores.softmax(-1)


def _scales(scores: Tensor, terms: Terms) -> Tensor:
    """What dropout multiplies the weights by."""
    if not terms.p:
        return scores.new_ones(())
    matrices, rows, columns = scores.shape
    kept = keep_mask(matrices * rows, columns, terms.p, terms.key, terms.first)
    return kept.view(scores.shape) * scores.new_tensor(terms.scale)
