"""Attention without gradients by a kernel in C, on processors with AVX-512 or AVX2."""

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from ..base.errors import DataError
from . import native
from .softmax import ScoreTerms


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    terms: ScoreTerms,
    lengths: Sequence[int] | None = None,
    visible: tuple[int, int] | None = None,
) -> Tensor | None:
    """softmax(q kᵀ + bias + padding) v, or None where the kernel cannot compute it.

    Args:
        q: scaled queries, B×H×T×E.
        k: keys, B×H×T×E.
        v: values, B×H×T×D.
        terms: without dropout; matrix h·B + b belongs to head h of sequence b.
        lengths: tokens of each sequence, or None for T each.
        visible: the lowest and the highest distance j − i of keys j that a query i can see, at
            most and at least 0; the bias hides the others. Or None for all keys.

    Returns:
        B×H×T×D, with 0 after the tokens of a sequence; its transpose, B×T×H×D, is contiguous.
    """
    kernels = native.serving(q, k, v)
    if kernels is None or not hasattr(kernels, "attend") or terms.p:
        return None
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    batch, heads, length, width = q.shape
    lengths = lengths or [length] * batch
    depth = v.size(-1)
    if len(lengths) != batch or not all(0 <= each <= length for each in lengths):
        raise DataError(f"lengths are {lengths}, but there are {batch} × {length} tokens.")
    make = torch.empty if min(lengths, default=0) == length else torch.zeros
    out = make(batch, length, heads, depth).transpose(1, 2)
    strides = [stride for x in (q, k, v, out) for stride in x.stride()[:3]]
    widths = (depth, width, width, depth)
    served = kernels.attend(
        *(
            native.pointer(x, batch, heads, length, each, strided=True)
            for x, each in zip((out, q, k, v), widths, strict=True)
        ),
        ctypes.byref(terms.in_c(batch * heads, length, length)),
        (ctypes.c_long * batch)(*lengths),
        (ctypes.c_long * len(strides))(*strides),
        batch,
        heads,
        length,
        width,
        depth,
        *((-length, length) if visible is None else visible),
    )
    return out if served else None
