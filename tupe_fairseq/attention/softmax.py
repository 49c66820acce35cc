"""What happens to a block of scores between the two products of attention.

Each function has a twin in native/kernels.c, for fp32, that does it in one pass.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor

from .. import native
from ..modules.dropout import PIECES, keep_mask, rounded, threshold


@dataclass(frozen=True)
class Terms:
    """What acts on a block of scores, M×R×S.

    Attributes:
        bias: M×R×S or 1×R×S, added; its last dimension is contiguous. Or None.
        padding: M×1×S or 1×1×S, added. Or None.
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

    def in_c(self) -> native.Terms:
        """The same for the kernels."""
        bias, padding = self.bias, self.padding
        return native.Terms(
            bias=None if bias is None else bias.data_ptr(),
            padding=None if padding is None else padding.data_ptr(),
            bias_matrix=_step(bias),
            bias_row=0 if bias is None else bias.stride(1),
            padding_matrix=_step(padding),
            key=self.key,
            first=self.first,
            threshold=threshold(self.p),
            scale=self.scale,
            drops=self.p > 0,
        )


def words(rows: int, columns: int) -> int:
    """Words of random bits that the mask of so many rows takes."""
    return rows * -(-columns // PIECES)


def weigh(scores: Tensor, terms: Terms) -> None:
    """Turn scores into dropout(softmax(scores + bias + padding)), in place."""
    kernels = native.kernels()
    if kernels is not None and scores.dtype == torch.float32:
        kernels.weigh(scores.data_ptr(), ctypes.byref(terms.in_c()), *scores.shape)
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
        kernels.weigh_backward(*pointers, bias, ctypes.byref(terms.in_c()), *scores.shape)
        return
    weights, scales = _softmax(scores, terms), _scales(scores, terms)
    torch.mul(weights, scales, out=scores)
    of_weights = of_dropped * scales
    torch.mul(weights, of_weights - (weights * of_weights).sum(-1, keepdim=True), out=of_dropped)
    if of_bias is not None:
        of_bias += of_dropped.sum_to_size(of_bias.shape)


def _softmax(scores: Tensor, terms: Terms) -> Tensor:
    for added in (terms.bias, terms.padding):
        if added is not None:
            scores = scores + added
    return scores.softmax(-1)


def _scales(scores: Tensor, terms: Terms) -> Tensor:
    """What dropout multiplies the weights by."""
    if not terms.p:
        return scores.new_ones(())
    matrices, rows, columns = scores.shape
    kept = keep_mask(matrices * rows, columns, terms.p, terms.key, terms.first)
    return kept.view(scores.shape) * scores.new_tensor(terms.scale)


def _step(x: Tensor | None) -> int:
    """Elements between one matrix and the next: none where all share one."""
    return 0 if x is None or x.size(0) == 1 else x.stride(0)
