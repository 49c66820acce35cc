"""torch's fused attention, and what its kernels for GPUs ask of those who call them."""

from __future__ import annotations

from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

#: A score at padding: its exponential is 0 in every dtype, and fp16 can hold it.
PADDING_SCORE = -1e4
#: The kernels take vectors whose width is a multiple of this; else torch keeps all scores.
MULTIPLE = 8
#: Those whose gradients are right with a mask: not cuDNN's, which torch prefers on compute
#: capability 9.0. It has none for the mask (torch 2.13: an error), and gives queries NaN for some
#: lengths (pytorch's issue 196678).
TRAINED_WITH_MASK = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def fused_attention(
    queries: list[Tensor],
    keys: list[Tensor],
    v: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    padding: Tensor | None = None,
) -> Tensor:
    """softmax(q kᵀ + mask + padding) v, of queries and keys in parts that belong side by side.

    Args:
        queries: already scaled, B×H×T×Dn each.
        keys: B×H×S×Dn each.
        v: values, B×H×S×D.
        mask: added to the scores, broadcastable to B×H×T×S; or what may be seen, where bool.
        dropout: probability of dropping an attention weight.
        padding: scores, B×1×1×S, which ride on one more dimension instead of the mask: 1 in
            queries, the score in keys.

    Returns:
        B×H×T×D.
    """
    if padding is not None:
        q, k = queries[0], keys[0]
        queries = [*queries, q.new_ones(()).expand(*q.shape[:-1], 1)]
        # B×1×1×S -> B×H×S×1
        keys = [*keys, padding.mT.expand(*k.shape[:-1], 1)]
    width = sum(part.size(-1) for part in queries)
    width += -width % MULTIPLE
    # The kernels want values as wide as keys.
    q, k, wide_v = (_side_by_side(parts, width) for parts in (queries, keys, [v]))
    trained = mask is not None and torch.is_grad_enabled()
    with sdpa_kernel(TRAINED_WITH_MASK) if trained else nullcontext():
        out = F.scaled_dot_product_attention(q, k, wide_v, mask, dropout, scale=1.0)
    return out[..., : v.size(-1)]


def _side_by_side(parts: list[Tensor], width: int) -> Tensor:
    """With zeros up to the width."""
    joined = torch.cat(parts, -1) if len(parts) > 1 else parts[0]
    missing = width - joined.size(-1)
    return F.pad(joined, (0, missing)) if missing else joined


def padding_scores(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """0 at words, `PADDING_SCORE` at padding: B×S -> B×1×1×S."""
    if mask is None:
        return None
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, PADDING_SCORE)[:, None, None]
