"""Batched products of matrices: by torch or, where that is faster, by a kernel in C.

The kernel serves the processors on which torch multiplies without AVX-512 (linear.py), where it
takes half of torch's time for the matrices of attention.
"""

import torch
from torch import Tensor

from . import native
from .linear import prefers_onednn


def multiply(a: Tensor, b: Tensor, out: Tensor, accumulate: bool = False) -> None:
    """Write the product a b to out, or add it to out: M×R×S · M×S×D -> M×R×D."""
    kernels = native.serving(a, b, out) if has_kernel(out.dtype) else None
    if kernels is not None and out.stride(-1) == 1 and 1 in b.stride()[1:]:
        matrices, rows, depth = a.shape
        columns = b.size(-1)
        kernels.multiply(
            native.pointer(out, matrices, rows, columns, strided=True),
            native.pointer(a, matrices, rows, depth, strided=True),
            native.pointer(b, matrices, depth, columns, strided=True),
            matrices,
            rows,
            depth,
            columns,
            *out.stride()[:2],
            *a.stride(),
            *b.stride(),
            accumulate,
        )
    elif accumulate:
        out += a @ b
    elif out.is_contiguous():
        torch.bmm(a, b, out=out)
    else:
        # Into strided memory, torch computes the products of a batch one after the other.
        out.copy_(a @ b)


def has_kernel(dtype: torch.dtype) -> bool:
    """Whether the kernel in C serves this dtype here."""
    return dtype == torch.float32 and prefers_onednn() and hasattr(native.kernels(), "multiply")
