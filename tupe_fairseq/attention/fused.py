"""torch's fused attention with vectors in parts and padding on the keys."""

from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..position.bias import HIDDEN
from ..position.dtypes import HALF
from .layout import Layout

#: The GPU kernels take vectors whose width is a multiple of this; otherwise torch falls back to a
#: path that stores all scores.
MULTIPLE = 8
#: Kernels without cuDNN's, which torch prefers on compute capability 9.0. Under a mask, those have
#: no gradient of the mask (torch 2.13: an error), and return NaN for the queries at some lengths
#: (pytorch issue 196678). Some of them round the probability of dropout to sixteenths; torch
#: refuses such probabilities since 2.12 only (pytorch pull request 174245).
WITHOUT_CUDNN = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
#: The widest vectors of `packed_attention`: of wider ones, not all GPUs compute gradients.
WIDEST_PACKED = 192


def takes_packed(width: int, dtype: torch.dtype, device: str) -> bool:
    """Whether `packed_attention` can run with these vectors on this type of device."""
    if dtype not in HALF or width > WIDEST_PACKED:
        return False
    if device == "cuda":
        is_built = torch.backends.cuda.is_flash_attention_available()
        return is_built and torch.cuda.get_device_capability() >= (8, 0)
    # Nothing is computed there.
    return device == "meta"


def packed_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cumulative: Tensor,
    longest: int,
    dropout: float = 0.0,
    scale: float = 1.0,
) -> Tensor:
    """softmax(scale · q kᵀ) v in each sequence of packed tokens, by FlashAttention (Dao 2023).

    torch has no public function for it with dropout.

    Args:
        q: queries, 1×H×N×D.
        k: keys, 1×H×N×D.
        v: values, 1×H×N×D.
        cumulative: tokens of the first 0, ..., B sequences, B + 1 in int32.
        longest: T, not below any of the lengths.
        dropout: probability of dropping an attention weight.
        scale: factor of the products.

    Returns:
        1×H×N×D.
    """
    width = q.size(-1) + -q.size(-1) % MULTIPLE
    # 1×H×N×D -> N×H×D
    packed = [_concatenate([x], width).squeeze(0).transpose(0, 1) for x in (q, k, v)]
    where = cumulative, cumulative, longest, longest
    attend = torch.ops.aten._flash_attention_forward
    out = attend(*packed, *where, dropout, False, False, scale=scale)[0]
    return out.transpose(0, 1)[None, ..., : v.size(-1)]


def cumulative_lengths(layout: Layout) -> Tensor | None:
    """What `packed_attention` reads of a layout; None where attention gets cells."""
    if layout.ends is None or not layout.is_packed:
        return None
    return F.pad(layout.ends, (1, 0)).int()


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
