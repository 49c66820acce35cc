"""torch's fused attention with vectors in parts and padding on the keys."""

from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..position.bias import HIDDEN

#: The GPU kernels take vectors whose width is a multiple of this; otherwise torch falls back to a
#: path that stores all scores.
MULTIPLE = 8
#: Kernels without cuDNN's, which torch prefers on compute capability 9.0. Under a mask, those have
#: no gradient of the mask (torch 2.13: an error), and return NaN for the queries at some lengths
#: (pytorch issue 196678). Some of them round the probability of dropout to sixteenths; torch
#: refuses such probabilities since 2.12 only (pytorch pull request 174245).
WITHOUT_CUDNN = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def fused_attention(
    queries: list[Tensor],
    keys: list[Tensor],
    v: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    padding: Tensor | None = None,
) -> Tensor:
    """softmax(q kᵀ + mask + padding) v for queries and keys in parts, which are concatenated.

    Args:
        queries: scaled, B×H×T×Dn each.
        keys: B×H×S×Dn each.
        v: values, B×H×S×D.
        mask: added to the scores, broadcastable to B×H×T×S.
        dropout: probability of dropping an attention weight.
        padding: scores, B×1×1×S, carried by one more dimension instead of the mask: 1 in the
            queries, the score in the keys.

    Returns:
        B×H×T×D.
    """
    if padding is not None:
        q = queries[0]
        k = keys[0]
        queries = [*queries, q.new_ones(()).expand(*q.shape[:-1], 1)]
        # B×1×1×S -> B×H×S×1
        keys = [*keys, padding.mT.expand(*k.shape[:-1], 1)]
    width = sum(part.size(-1) for part in queries)
    width += -width % MULTIPLE
    # The kernels require values as wide as keys.
    q = _concatenate(queries, width)
    k = _concatenate(keys, width)
    wide_v = _concatenate([v], width)
    trained = mask is not None and torch.is_grad_enabled()
    is_rounded = 16 * dropout % 1 != 0
    with sdpa_kernel(WITHOUT_CUDNN) if trained or is_rounded else nullcontext():
        out = F.scaled_dot_product_attention(q, k, wide_v, mask, dropout, scale=1.0)
    return out[..., : v.size(-1)]


def _concatenate(parts: list[Tensor], width: int) -> Tensor:
    """The parts side by side, with zeros up to the width."""
    joined = torch.cat(parts, -1) if len(parts) > 1 else parts[0]
    missing = width - joined.size(-1)
    return F.pad(joined, (0, missing)) if missing else joined


def padding_scores(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """0 at tokens, `HIDDEN` at padding: B×S -> B×1×1×S."""
    if mask is None:
        return None
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, HIDDEN)[:, None, None]
