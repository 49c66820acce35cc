"""Attention by torch's scaled_dot_product_attention, which has fused kernels."""

from .backend import ATTENTION_BACKENDS, Backend, Need
from .fused import fused_attention, padding_scores


class Sdpa(Backend):
    """Stores the bias as H×T×S; with a bias, padding is carried by the keys, not by a mask."""

    name = "sdpa"
    serves = frozenset(Need) - {Need.WEIGHTS, Need.RELATIVE_VALUE, Need.CONTENT_VALUE}

    def prepare(self, score, layout, heads, dtype):
        # The kernels require a bias in the dtype of the queries.
        bias = None if score is None else score.dense().to(dtype)[None]
        return bias, padding_scores(layout.padding_mask, dtype)

    def attend(self, q, k, v, prepared, terms=None, dropout=0.0, need_weights=False):
        bias, padding = prepared
        if terms is not None and terms.terms.adds_score:
            added = terms.add_to_scores(None, q, k)
            bias = added if bias is None else bias + added
        if bias is None:
            return fused_attention([q], [k], v, padding, dropout), None
        return fused_attention([q], [k], v, bias, dropout, padding), None


ATTENTION_BACKENDS.register(Sdpa.name)(Sdpa())
