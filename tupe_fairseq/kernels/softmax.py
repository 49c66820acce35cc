"""Softmax with dropout over a block of attention scores, in place, and its gradient.

Each function has a counterpart in kernels.c for fp32 that takes one pass over memory.
"""

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor

from . import native
from .random_bits import keep_mask, rounded, threshold


@dataclass(frozen=True)
class ScoreTerms:
    """What is added to a block of scores, M×R×S, and the dropout of its weights.

    Attributes:
        bias: G×R×S with a contiguous last dimension; each is added to M/G consecutive matrices.
            Or None.
        padding: P×1×S; matrix m gets padding m mod P. Or None.
        p: probability of dropping a weight.
        key: key of the dropout mask.
        first: counter of the mask's first word.
    """

    bias: Tensor | None = None
    padding: Tensor | None = None
    p: float = 0.0
    key: int = 0
    first: int = 0

    @property
    def scale(self) -> float:
        """Factor of the weights that are kept."""
        return 1 / (1 - rounded(self.p))

    def in_c(self, matrices: int) -> native.ScoreTerms:
        """The struct that the C kernels read, for M matrices."""
        found = native.ScoreTerms(
            key=self.key,
            first=self.first,
            threshold=threshold(self.p),
            drops=self.p > 0,
            scale=self.scale,
        )
        if (bias := self.bias) is not None:
            found.bias, found.matrices_per_bias = bias.data_ptr(), matrices // len(bias)
            found.bias_matrix, found.bias_row, _ = bias.stride()
        if (padding := self.padding) is not None:
            found.padding, found.paddings = padding.data_ptr(), len(padding)
            found.padding_matrix = padding.stride(0)
        return found


def softmax_dropout_(scores: Tensor, terms: ScoreTerms) -> None:
    """Replace scores, M×R×S, by dropout(softmax(scores + bias + padding))."""
    kernels = native.kernels()
    if kernels is not None and scores.dtype == torch.float32:
        arguments = (scores.data_ptr(), ctypes.byref(terms.in_c(len(scores))), *scores.shape)
        kernels.softmax_dropout(*arguments)
        return
    torch.mul(_softmax(scores, terms), _scales(scores, terms), out=scores)


def softmax_dropout_backward_(
    scores: Tensor, grad_dropped: Tensor, grad_bias: Tensor | None, terms: ScoreTerms
) -> None:
    """The gradient of `softmax_dropout_`, in place.

    Args:
        scores: M×R×S, the input of `softmax_dropout_`; replaced by its output.
        grad_dropped: gradient of that output; replaced by the gradient of the scores.
        grad_bias: the bias's gradient is added to it, in the bias's shape and strides; or None.
        terms: as for `softmax_dropout_`.
    """
    kernels = native.kernels()
    if kernels is not None and scores.dtype == torch.float32:
        pointers = (scores.data_ptr(), grad_dropped.data_ptr())
        bias = None if grad_bias is None else grad_bias.data_ptr()
        kernels.softmax_dropout_backward(
            *pointers, bias, ctypes.byref(terms.in_c(len(scores))), *scores.shape
        )
        return
    weights, scales = _softmax(scores, terms), _scales(scores, terms)
    torch.mul(weights, scales, out=scores)
    grad_weights = grad_dropped * scales
    mean = (weights * grad_weights).sum(-1, keepdim=True)
    torch.mul(weights, grad_weights - mean, out=grad_dropped)
    if grad_bias is not None:
        grad_bias += grad_dropped.unflatten(0, (len(grad_bias), -1)).sum(1)


def _softmax(scores: Tensor, terms: ScoreTerms) -> Tensor:
    matrices = len(scores)
    if terms.bias is not None:
        scores = scores + terms.bias.repeat_interleave(matrices // len(terms.bias), 0)
    if terms.padding is not None:
        scores = scores + terms.padding.repeat(matrices // len(terms.padding), 1, 1)
    return scores.softmax(-1)


def _scales(scores: Tensor, terms: ScoreTerms) -> Tensor:
    """Factors by which dropout multiplies the weights."""
    if not terms.p:
        return scores.new_ones(())
    matrices, rows, columns = scores.shape
    kept = keep_mask(matrices * rows, columns, terms.p, terms.key, terms.first)
    return kept.view(scores.shape) * scores.new_tensor(terms.scale)
