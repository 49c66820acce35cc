"""Layers for inference: one product for queries, keys and values, constant terms computed once."""

from typing import Any

import torch
from torch import Tensor, nn

from ...attention import Layout, TupeMultiheadAttention
from ...kernels.linear import project
from ...position import LayerTerms
from ...position.deberta import DebertaTerms
from ...position.relative import FixedVectors, RelativeVectors


class JoinedAttention(TupeMultiheadAttention):
    """Self-attention with one projection, C -> 3C, whose queries are scaled.

    Args:
        attention: whose sizes and output projection it has.
        terms: the layer's terms.
    """

    def __init__(self, attention: TupeMultiheadAttention, terms: LayerTerms | None):
        width = attention.embed_dim
        bias = attention.q_proj.bias is not None
        with torch.device("meta"):
            super().__init__(width, attention.num_heads, attention.dropout, layer_terms=terms)
            self.qkv_proj = nn.Linear(width, 3 * width, bias)
        for name in ("q_proj", "k_proj", "v_proj"):
            delattr(self, name)
        self.out_proj = attention.out_proj
        self.train(attention.training)

    def _project(self, x: Tensor, layout: Layout) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = project(x, self.qkv_proj).chunk(3, -1)
        heads = self.num_heads
        return layout.per_head(q, heads), layout.per_head(k, heads), layout.per_head(v, heads)


class FixedTerms(LayerTerms):
    """DeBERTa's terms of constant weights, which are projected once for all distances."""

    def __init__(self, terms: Any, encoding: Any, attention: TupeMultiheadAttention):
        super().__init__()
        self.fixed = FixedVectors(terms.relative(encoding, encoding.longest, attention))

    def relative(self, encoding: Any, length: int, attention: Any = None) -> RelativeVectors:
        return self.fixed.within(length)


@torch.no_grad()
def join_products(stack: Any) -> None:
    """Let one product give queries, keys and values, and compute terms of weights alone once.

    Layers with other terms than DeBERTa's stay.
    """
    for layer in stack.layers:
        terms = layer.self_attn.layer_terms
        if terms is None or isinstance(terms, DebertaTerms):
            layer.self_attn = _for_inference(layer.self_attn, stack.embed_positions)


def _for_inference(attention: Any, encoding: Any) -> JoinedAttention:
    """An attention that computes the same with constant weights."""
    terms = attention.layer_terms
    if terms is not None:
        terms = FixedTerms(terms, encoding, attention)
    joined = JoinedAttention(attention, terms)
    parts = [attention.q_proj, attention.k_proj, attention.v_proj]
    for name, _ in parts[0].named_parameters():
        q, k, v = (getattr(part, name) for part in parts)
        scaled = torch.cat((attention.scaling * q, k, v))
        setattr(joined.qkv_proj, name, nn.Parameter(scaled))
    return joined
