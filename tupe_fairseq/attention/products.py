"""Batched products of matrices, by torch or, where that is faster, by oneDNN one by one."""

from __future__ import annotations

import torch
from torch import Tensor

from ..kernels.linear import linear, prefers_onednn

#: Multiplications of a matrix from which oneDNN's products are faster than torch's of a batch.
LARGE = 1 << 23


def multiply(a: Tensor, b: Tensor, out: Tensor, accumulate: bool = False) -> None:
    """Write the product a b to out, or add it to out: M×R×S · M×S×D -> M×R×D."""
    if is_large(a, b):
        for left, right, result in zip(a, b, out, strict=True):
            if accumulate:
                result += product(left, right)
            else:
                result.copy_(product(left, right))
    elif accumulate:
        out += a @ b
    elif out.is_contiguous():
        torch.bmm(a, b, out=out)
    else:
        # Into strided memory, torch computes the products of a batch one after the other.
        out.copy_(a @ b)


def multiplied(a: Tensor, b: Tensor, memory: Tensor) -> Tensor:
    """The product a b, in memory where that saves allocating it: M×R×S · M×S×D -> M×R×D."""
    if len(a) == 1 and is_large(a, b):
        return product(a[0], b[0])[None]
    multiply(a, b, memory)
    return memory


def is_large(a: Tensor, b: Tensor) -> bool:
    """Whether oneDNN's product of each matrix is faster than torch's of the batch."""
    return a[0].numel() * b.size(-1) >= LARGE and prefers_onednn()


def product(a: Tensor, b: Tensor) -> Tensor:
    """The product a b: R×S · S×D -> R×D.

    oneDNN transposes a factor in memory where its rows are not consecutive: the smaller one here.
    """
    if a.stride(-1) == 1:
        return linear(a, b.mT, None)
    return linear(b.mT, a, None).mT
