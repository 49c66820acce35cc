"""Attention by torch's scaled_dot_product_attention, which has fused kernels."""

import torch
from torch import Tensor

from ..position.bias import AttentionBias
from ..position.relative import RelativeVectors
from .backend import ATTENTION_BACKENDS, Backend, Feature, Inputs, Prepared
from .fused import fused_attention, padding_scores
from .layout import Layout


class Sdpa(Backend):
    """Stores the bias as H×T×S; with a bias, padding is carried by the keys, not by a mask."""

    name = "sdpa"
    supports = frozenset(Feature) - {Feature.RELATIVE_VALUES}

    def prepare(
        self, bias: AttentionBias | None, layout: Layout, heads: int, dtype: torch.dtype
    ) -> Inputs:
        mask = None if bias is None else bias.dense().to(dtype)[None]
        return Inputs(mask, padding_scores(layout.padding_mask, dtype))

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        prepared: Prepared,
        p: float,
        relative: RelativeVectors | None = None,
    ) -> Tensor:
        bias = prepared.inputs.bias
        padding = prepared.inputs.padding
        if relative is not None:
            of_layer = relative.scores(q, k, prepared.start)
            bias = of_layer if bias is None else bias + of_layer
        if bias is not None:
            # The kernels require an aligned address.
            bias = bias.contiguous()
        if bias is None:
            return fused_attention([q], [k], v, padding, p)
        return fused_attention([q], [k], v, bias, p, padding)


ATTENTION_BACKENDS.register(Sdpa.name)(Sdpa())
