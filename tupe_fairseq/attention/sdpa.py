"""Attention by torch's scaled_dot_product_attention, with a fused kernel where it has one."""

from __future__ import annotations

from .backend import ATTENTION_BACKENDS, Backend
from .fused import fused_attention, padding_scores


class Sdpa(Backend):
    """The bias stays H×T×S: padding rides on the keys where a bias takes the place of the mask."""

    name = "sdpa"
    causal = True

    def speed(self, device):
        return 1

    def refuses(self, encoding, terms, need_weights):
        if need_weights:
            return "it does not return attention weights"
        if terms is not None and terms.adds_value:
            return "it cannot add a positional term to the values"
        return None

    def prepare(self, score, layout, heads, dtype):
        # The kernels take a bias in the dtype of the queries only.
        bias = None if score is None else score.dense().to(dtype)[None]
        return bias, padding_scores(layout.padding_mask, dtype)

    def attend(self, q, k, v, shared, layer):
        bias, padding = shared.prepared
        terms = layer.layer_terms
        if terms is not None and terms.adds_score:
            added = terms.score(q, k, shared.encoding)
            bias = added if bias is None else bias + added
        dropout = layer.dropout if layer.training else 0.0
        if bias is None:
            return fused_attention([q], [k], v, padding, dropout), None
        return fused_attention([q], [k], v, bias, dropout, padding), None


ATTENTION_BACKENDS.register(Sdpa.name)(Sdpa())
