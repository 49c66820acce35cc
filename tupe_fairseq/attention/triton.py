"""Attention with a dense bias, or vectors by distance, by the project's Triton kernels, on GPUs.

The bias is read once for all sequences of a batch, its gradient is summed without atomics, and
nothing is computed for padding at the end of a sequence. A window and causal order are a bias
whose hidden cells are computed too.

DeBERTa's terms of content and position take two tables, 2·N·H·(2T − 1) numbers, where `sdpa`
takes several tensors of B·H·T² numbers in both passes, and a bias for each sequence. `sdpa` still
computes what Transformer-XL adds to queries and keys, and other queries than keys (incremental
decoding, attention to a source).
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from ..kernels import triton_attention, triton_trial
from ..position.bias import AttentionBias
from ..position.relative import ByDistance, RelativeVectors
from .backend import ATTENTION_BACKENDS, Feature, Inputs, Prepared
from .fused import cumulative_lengths, packed_attention, takes_packed
from .layout import Layout
from .sdpa import Sdpa

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
#: Bytes at which rows of the bias begin are multiples of that of so many entries.
ALIGNED = 16


class Triton(Sdpa):
    """For encodings that add to the scores; torch's kernels compute the others."""

    name = "triton"
    supports = frozenset(Feature) - {Feature.RELATIVE_VALUES}

    def unavailable(self, device: str) -> str | None:
        return triton_trial.unavailable(device)

    def takes_packed(self, has_bias: bool, width: int, dtype: torch.dtype, device: str) -> bool:
        if width > triton_attention.WIDEST:
            return False
        return dtype in DTYPES if has_bias else takes_packed(width, dtype, device)

    def prepare(
        self, bias: AttentionBias | None, layout: Layout, heads: int, dtype: torch.dtype
    ) -> Inputs:
        inputs = super().prepare(bias, layout, heads, dtype)
        inputs = replace(inputs, sequences=_sequences(layout))
        if inputs.bias is None:
            cumulative = cumulative_lengths(layout)
            return replace(inputs, cumulative=cumulative, scales=cumulative is not None)
        if layout.other_queries or dtype not in DTYPES:
            return inputs
        # 1×H×T×T -> H×T×T
        dense = inputs.bias.squeeze(0)
        missing = -dense.size(-1) % ALIGNED
        aligned = F.pad(dense, (0, missing))[..., : dense.size(-1)] if missing else dense
        by_keys = triton_attention.transposed(aligned) if torch.is_grad_enabled() else None
        return replace(inputs, bias=aligned, by_keys=by_keys, scales=True)

    def random_numbers(self, prepared: Prepared, layers: int) -> Tensor | None:
        bias = prepared.inputs.bias
        if bias is None or bias.dim() == 4:
            return None
        layout = prepared.layout
        rows = layout.batch * layout.length
        if layout.is_packed and layout.positions is not None:
            rows = len(layout.positions)
        return triton_attention.random_numbers(rows, len(bias), bias.device, layers)

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        prepared: Prepared,
        p: float,
        relative: RelativeVectors | None = None,
    ) -> Tensor:
        inputs = prepared.inputs
        layout = prepared.layout
        width = q.size(-1)
        if relative is None and inputs.bias is None and inputs.cumulative is not None:
            where = inputs.cumulative, layout.length
            return packed_attention(q, k, v, *where, p, prepared.scale)
        if not _has_kernel(q, prepared, relative):
            scaled = q if prepared.scale == 1 else q * prepared.scale
            return super().attend(scaled, k, v, prepared, p, relative)
        # The kernels require values as wide as keys. B×H×T×E -> B·T×H×E, or 1×H×N×E -> N×H×E
        wide_v = F.pad(v, (0, width - v.size(-1))) if v.size(-1) < width else v
        of_q, of_k, of_v = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, wide_v))
        hidden = None
        if inputs.padding is not None and layout.lengths is None:
            # It may be anywhere: B×1×1×T -> B·T
            hidden = inputs.padding.float().flatten()
        for_queries = for_keys = None
        if relative is not None:
            of_layer = relative.for_queries, relative.for_keys
            for_queries, for_keys = (_vectors(x, q.size(1), layout.length) for x in of_layer)
        starts, ends = inputs.sequences or (None, None)
        out = triton_attention.attention(
            of_q,
            of_k,
            of_v,
            starts=starts,
            ends=ends,
            longest=layout.length,
            bias=inputs.bias,
            hidden=hidden,
            scale=prepared.scale,
            dropout=p,
            padded=inputs.padding is not None,
            by_keys=inputs.by_keys,
            random=prepared.random,
            for_queries=for_queries,
            for_keys=for_keys,
        )
        # B·T×H×E -> B×H×T×D, or N×H×E -> 1×H×N×D
        return out.unflatten(0, (-1, q.size(2))).transpose(1, 2)[..., : v.size(-1)]


def _has_kernel(q: Tensor, prepared: Prepared, relative: RelativeVectors | None) -> bool:
    """Whether the Triton kernels compute this layer's attention."""
    bias = prepared.inputs.bias
    if prepared.layout.other_queries or q.size(-1) > triton_attention.WIDEST:
        return False
    if relative is None:
        return bias is not None and bias.dim() == 3
    return (
        q.dtype in DTYPES
        and relative.for_values is None
        and relative.query_bias is None
        and relative.key_bias is None
    )


def _vectors(table: ByDistance | None, heads: int, length: int) -> Tensor | None:
    """The vectors of the distances from 1 − T to T − 1, H×(2T−1)×D."""
    if table is None:
        return None
    near = table.within(length, length)
    vectors = near.vectors
    if vectors.size(1) < 2 * length - 1:
        distance = torch.arange(1 - length, length, device=vectors.device)
        rows = (distance - near.first).clamp(0, vectors.size(1) - 1)
        vectors = vectors.index_select(1, rows)
    return vectors.expand(heads, -1, -1)


def _sequences(layout: Layout) -> tuple[Tensor, Tensor] | None:
    """The first row of each sequence, and the row after its last token; None: T rows each."""
    cumulative = cumulative_lengths(layout)
    if cumulative is not None:
        return cumulative[:-1], cumulative[1:]
    mask = layout.padding_mask
    if mask is None or layout.other_queries:
        return None
    starts = torch.arange(layout.batch, device=mask.device) * layout.length
    lengths = torch.arange(1, layout.length + 1, device=mask.device) * ~mask
    return starts, starts + lengths.amax(1)


ATTENTION_BACKENDS.register(Triton.name)(Triton())
