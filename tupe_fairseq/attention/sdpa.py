"""Attention by torch's scaled_dot_product_attention, which has fused kernels."""

from typing import Any

import torch
from torch import Tensor

from ..position.bias import HIDDEN, AttentionBias
from ..position.dtypes import widened
from .backend import ATTENTION_BACKENDS, Backend, Feature, LayerScores, Prepared
from .fused import fused_attention, padding_scores
from .layout import Layout


class Sdpa(Backend):
    """Stores the bias as H×T×S; with a bias, padding is carried by the keys, not by a mask."""

    name = "sdpa"
    supports = frozenset(Feature) - {
        *(Feature.RELATIVE_VALUES, Feature.FACTOR, Feature.SCALED_VECTORS)
    }

    def prepare(
        self,
        bias: AttentionBias | None,
        layout: Layout,
        heads: int,
        dtype: torch.dtype,
        hidden_score: float = HIDDEN,
    ) -> Any:
        # What a layer adds to a bias in half precision can exceed its range.
        kept = dtype if hidden_score == HIDDEN else widened(dtype)
        mask = None if bias is None else bias.dense().to(kept)[None]
        return mask, padding_scores(layout.padding_mask, dtype, hidden_score)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, prepared: Prepared, added: LayerScores, p: float
    ) -> Tensor:
        bias, padding = prepared.inputs
        if (of_layer := added.dense(q, k, prepared.start)) is not None:
            of_layer = prepared.scaled(of_layer)
            bias = of_layer if bias is None else bias + of_layer
            if prepared.encoding is not None and prepared.encoding.hidden_score != HIDDEN:
                bias, padding = _reduced(bias, prepared.layout.padding_mask), None
        if bias is not None:
            # The kernels require a bias in the dtype of the queries, and at an aligned address.
            bias = bias.to(q.dtype).contiguous()
        q = prepared.scaled(q)
        if bias is None:
            return fused_attention([q], [k], v, padding, p)
        return fused_attention([q], [k], v, bias, p, padding)


def _reduced(bias: Tensor, padding: Tensor | None) -> Tensor:
    """Terms up to any size, B×H×T×S, without those of padding, B×S, less the largest of each row.

    Softmax does not change, and half precision can represent what is left.
    """
    if padding is not None:
        bias = bias.masked_fill(padding[:, None, None], torch.finfo(bias.dtype).min / 2)
    return bias - bias.amax(-1, keepdim=True).detach()


ATTENTION_BACKENDS.register(Sdpa.name)(Sdpa())
