"""Attention by torch's scaled_dot_product_attention, which has fused kernels."""

from typing import Any

import torch
from torch import Tensor

from ..position.bias import AttentionBias
from .backend import ATTENTION_BACKENDS, Backend, Feature, SharedAttention
from .fused import fused_attention, padding_scores
from .layout import Layout


class Sdpa(Backend):
    """Stores the bias as H×T×S; with a bias, padding is carried by the keys, not by a mask."""

    name = "sdpa"
    supports = frozenset(Feature) - {
        *(Feature.RELATIVE_VALUES, Feature.FACTOR, Feature.SCALED_SUMS)
    }

    def prepare(
        self, bias: AttentionBias | None, layout: Layout, heads: int, dtype: torch.dtype
    ) -> Any:
        mask = None if bias is None else bias.dense().to(dtype)[None]
        return mask, padding_scores(layout.padding_mask, dtype)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, shared: SharedAttention, dropout: float = 0.0
    ) -> Tensor:
        bias, padding = shared.prepared
        if (added := shared.layer_scores(q, k)) is not None:
            added = shared.scaled(added)
            # The kernels require a bias in the dtype of the queries.
            bias = (added if bias is None else bias + added).to(q.dtype)
        q = shared.scaled(q)
        if bias is None:
            return fused_attention([q], [k], v, padding, dropout)
        return fused_attention([q], [k], v, bias, dropout, padding)


ATTENTION_BACKENDS.register(Sdpa.name)(Sdpa())
