"""Attention with a dense bias by the project's Triton kernels, on GPUs.

The bias is read once for all sequences of a batch, its gradient is summed without atomics, and
nothing is computed for padding at the end of a sequence.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from ..kernels import triton_attention
from ..position.bias import AttentionBias
from ..position.relative import RelativeVectors
from .backend import ATTENTION_BACKENDS, Feature, Inputs, Prepared
from .fused import cumulative_lengths, packed_attention, takes_packed
from .layout import Layout
from .sdpa import Sdpa

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
#: Bytes at which rows of the bias begin are multiples of that of so many entries.
ALIGNED = 16


class Triton(Sdpa):
    """For encodings with a bias; torch's kernels compute what has none, and other queries."""

    name = "triton"
    supports = frozenset({Feature.DISTANCE, Feature.DECODER, Feature.WINDOW, Feature.COMPILED})

    def unavailable(self, device: str) -> str | None:
        return triton_attention.unavailable(device)

    def takes_packed(self, has_bias: bool, width: int, dtype: torch.dtype, device: str) -> bool:
        if has_bias:
            return dtype in DTYPES and width <= triton_attention.WIDEST
        return takes_packed(width, dtype, device)

    def prepare(
        self, bias: AttentionBias | None, layout: Layout, heads: int, dtype: torch.dtype
    ) -> Inputs:
        inputs = super().prepare(bias, layout, heads, dtype)
        if inputs.bias is None:
            return replace(inputs, cumulative=cumulative_lengths(layout))
        if layout.other_queries or dtype not in DTYPES:
            return inputs
        # 1×H×T×T -> H×T×T
        dense = inputs.bias.squeeze(0)
        missing = -dense.size(-1) % ALIGNED
        aligned = F.pad(dense, (0, missing))[..., : dense.size(-1)] if missing else dense
        by_keys = triton_attention.transposed(aligned) if torch.is_grad_enabled() else None
        sequences = _sequences(layout, aligned.device)
        return replace(inputs, bias=aligned, by_keys=by_keys, sequences=sequences, scales=True)

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        prepared: Prepared,
        p: float,
        relative: RelativeVectors | None = None,
    ) -> Tensor:
        inputs, layout, width = prepared.inputs, prepared.layout, q.size(-1)
        if inputs.cumulative is not None:
            return packed_attention(q, k, v, inputs.cumulative, layout.length, p)
        if inputs.bias is None or inputs.sequences is None or width > triton_attention.WIDEST:
            scaled = q if prepared.scale == 1 else q * prepared.scale
            return super().attend(scaled, k, v, prepared, p, relative)
        # The kernels require values as wide as keys. B×H×T×E -> B·T×H×E, or 1×H×N×E -> N×H×E
        wide_v = F.pad(v, (0, width - v.size(-1))) if v.size(-1) < width else v
        of_q, of_k, of_v = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, wide_v))
        hidden = None
        if inputs.padding is not None and layout.lengths is None:
            # It may be anywhere: B×1×1×T -> B·T
            hidden = inputs.padding.float().flatten()
        out = triton_attention.attention(
            of_q,
            of_k,
            of_v,
            *inputs.sequences,
            longest=layout.length,
            bias=inputs.bias,
            hidden=hidden,
            scale=prepared.scale,
            dropout=p,
            padded=inputs.padding is not None,
            by_keys=inputs.by_keys,
        )
        # B·T×H×E -> B×H×T×D, or N×H×E -> 1×H×N×D
        return out.unflatten(0, (-1, q.size(2))).transpose(1, 2)[..., : v.size(-1)]


def _sequences(layout: Layout, device: torch.device) -> tuple[Tensor, Tensor]:
    """Row of the first cell of each sequence, and its cells up to the last token."""
    if layout.ends is not None and layout.is_packed:
        starts = F.pad(layout.ends, (1, 0))
        return starts[:-1], starts.diff()
    starts = torch.arange(layout.batch, device=device) * layout.length
    if layout.padding_mask is None:
        return starts, torch.full_like(starts, layout.length)
    ends = torch.arange(1, layout.length + 1, device=device)
    return starts, (ends * ~layout.padding_mask).amax(1)


ATTENTION_BACKENDS.register(Triton.name)(Triton())
