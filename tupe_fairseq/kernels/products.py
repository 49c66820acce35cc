"""Batched products of matrices: by torch or, where that is faster, by a kernel in C or by oneDNN.

The kernel serves the processors on which torch multiplies without AVX-512 (linear.py), where it
takes half of torch's time for the matrices of attention. Without it, oneDNN multiplies large
matrices one by one.
"""

import torch
from torch import Tensor

from . import native
from .linear import linear, prefers_onednn

#: Multiplications of a matrix from which oneDNN's products are faster than torch's of a batch.
LARGE = 1 << 23


def multiply(a: Tensor, b: Tensor, out: Tensor, accumulate: bool = False) -> None:
    """Write the product a b to out, or add it to out: M×R×S · M×S×D -> M×R×D."""
    if _by_kernel(a, b, out, accumulate):
        return
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


def multiplied(a: Tensor, b: Tensor, workspace: Tensor) -> Tensor:
    """The product a b, in the workspace where that saves allocating it: M×R×S · M×S×D -> M×R×D."""
    if _by_kernel(a, b, workspace):
        return workspace
    if len(a) == 1 and is_large(a, b):
        return product(a[0], b[0])[None]
    multiply(a, b, workspace)
    return workspace


def has_kernel(dtype: torch.dtype) -> bool:
    """Whether the kernel in C serves this dtype here."""
    if dtype != torch.float32 or not prefers_onednn():
        return False
    kernels = native.kernels()
    return kernels is not None and bool(kernels.serves_products())


def _by_kernel(a: Tensor, b: Tensor, out: Tensor, accumulate: bool = False) -> bool:
    """Whether the kernel in C has computed the product."""
    kernels = native.serving(a, b, out) if has_kernel(out.dtype) else None
    if kernels is None or out.stride(-1) != 1 or 1 not in b.stride()[1:]:
        return False
    (matrices, rows, depth), columns = a.shape, b.size(-1)
    kernels.multiply(
        native.pointer(out, matrices, rows, columns, strided=True),
        native.pointer(a, matrices, rows, depth, strided=True),
        native.pointer(b, matrices, depth, columns, strided=True),
        *(matrices, rows, depth, columns),
        *(*out.stride()[:2], *a.stride(), *b.stride()),
        accumulate,
    )
    return True


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
