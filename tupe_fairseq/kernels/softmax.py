"""Softmax with dropout over a block of attention scores, in place, and its gradient.

Each function has a counterpart in kernels.c for fp32 that takes one pass over memory.
"""

import ctypes
from dataclasses import dataclass

from torch import Tensor

from ..base.errors import DataError
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

    def in_c(self, matrices: int, rows: int, columns: int) -> native.TermsInC:
        """The struct that the C kernels read, for M×R×S scores.

        Raises:
            DataError: the terms have other shapes or strides.
        """
        struct = native.TermsInC(
            key=self.key,
            first=self.first,
            threshold=threshold(self.p),
            drops=self.p > 0,
            scale=self.scale,
        )
        bias = self.bias
        if bias is not None:
            struct.bias = native.pointer(bias, len(bias), rows, columns, strided=True)
            struct.bias_matrix, struct.bias_row, step = bias.stride()
            struct.matrices_per_bias = matrices // len(bias)
            if step != 1 or matrices % len(bias):
                raise DataError(
                    f"a bias of shape {tuple(bias.shape)} and strides {bias.stride()} cannot be "
                    f"added to {matrices} matrices."
                )
        padding = self.padding
        if padding is not None:
            struct.padding = native.pointer(padding, len(padding), 1, columns, strided=True)
            struct.paddings = len(padding)
            struct.padding_matrix = padding.stride(0)
            if padding.stride(-1) != 1:
                raise DataError(
                    f"padding needs a contiguous last dimension; strides: {padding.stride()}."
                )
        return struct


def softmax_dropout_(scores: Tensor, terms: ScoreTerms) -> None:
    """Replace scores, M×R×S, by dropout(softmax(scores + bias + padding))."""
    kernels = native.serving(scores)
    if kernels is not None:
        at = native.pointer(scores, *scores.shape)
        shape = scores.shape
        kernels.softmax_dropout(at, ctypes.byref(terms.in_c(*shape)), *shape)
        return
    scores.copy_(_softmax(scores, terms) * _scales(scores, terms))


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
    kernels = native.serving(scores)
    if kernels is not None:
        shape = scores.shape
        bias = None
        if grad_bias is not None:
            if terms.bias is None or grad_bias.stride() != terms.bias.stride():
                raise DataError(
                    f"grad_bias must have the strides of bias, but has {grad_bias.stride()}."
                )
            bias = native.pointer(grad_bias, *terms.bias.shape, strided=True)
        pointers = (native.pointer(each, *shape) for each in (scores, grad_dropped))
        kernels.softmax_dropout_backward(*pointers, bias, ctypes.byref(terms.in_c(*shape)), *shape)
        return
    weights = _softmax(scores, terms)
    scales = _scales(scores, terms)
    scores.copy_(weights * scales)
    grad_weights = grad_dropped * scales
    mean = (weights * grad_weights).sum(-1, keepdim=True)
    grad_dropped.copy_(weights * (grad_weights - mean))
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
