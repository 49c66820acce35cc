"""TUPE-A by a fused kernel without a mask: positions are dimensions of queries and keys.

[q_i; p_i U^Q/√(2D)] · [k_j; p_j U^K] is the score of TUPE-A. Two of these dimensions untie [CLS]
(`AttentionBias.vectors`), one more masks padding: 1 in the query, a large negative
number in the key. No T×T tensor exists, and dropout is the kernel's own.
"""

import torch
from torch import Tensor

from ..position.bias import AttentionBias
from ..position.relative import RelativeVectors
from .backend import ATTENTION_BACKENDS, Backend, Feature, Inputs, Prepared
from .fused import (
    cumulative_lengths,
    fused_attention,
    packed_attention,
    padding_scores,
    takes_packed,
)
from .layout import Layout


class Flash(Backend):
    """For GPUs: encodings without a bias, or with one that is a product of vectors."""

    name = "flash"
    supports = frozenset({Feature.COMPILED})

    def takes_packed(self, has_bias: bool, width: int, dtype: torch.dtype, device: str) -> bool:
        return not has_bias and takes_packed(width, dtype, device)

    def prepare(
        self, bias: AttentionBias | None, layout: Layout, heads: int, dtype: torch.dtype
    ) -> Inputs:
        padding = padding_scores(layout.padding_mask, dtype)
        if bias is None:
            cumulative = cumulative_lengths(layout)
            return Inputs(padding=padding, cumulative=cumulative, scales=cumulative is not None)
        # H×T×E -> 1×H×T×E
        queries, keys = (x.to(dtype)[None] for x in bias.vectors())
        return Inputs(padding=padding, queries=queries, keys=keys)

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
        if inputs.cumulative is not None:
            where = inputs.cumulative, prepared.layout.length
            return packed_attention(q, k, v, *where, p, prepared.scale)
        queries = [q]
        keys = [k]
        if inputs.queries is not None and inputs.keys is not None:
            queries.append(inputs.queries.expand(len(q), -1, -1, -1))
            keys.append(inputs.keys.expand(len(k), -1, -1, -1))
        return fused_attention(queries, keys, v, dropout=p, padding=inputs.padding)


ATTENTION_BACKENDS.register(Flash.name)(Flash())
