"""Attention by torch's scaled_dot_product_attention, with a fused kernel where it has one."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .backend import ATTENTION_BACKENDS, Backend

#: A score at padding: its exponential is 0 in every dtype, and fp16 can hold it.
PADDING_SCORE = -1e4


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
        if padding is not None and bias is not None:
            q, k = padding_as_dimension(q, k, padding)
        mask = padding if bias is None else bias
        dropout = layer.dropout if layer.training else 0.0
        # Queries arrive scaled.
        return F.scaled_dot_product_attention(q, k, v, mask, dropout, scale=1.0), None


def padding_scores(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """0 at words, `PADDING_SCORE` at padding: B×S -> B×1×1×S."""
    if mask is None:
        return None
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, PADDING_SCORE)[:, None, None]


def padding_as_dimension(q: Tensor, k: Tensor, padding: Tensor) -> tuple[Tensor, Tensor]:
    """Carry the padding mask in one more dimension of queries and keys: 1 there, its score here.

    Args:
        q: B×H×T×D.
        k: B×H×S×D.
        padding: 0 at tokens, `PADDING_SCORE` at padding, B×1×1×S.

    Returns:
        B×H×T×(D+1) and B×H×S×(D+1), whose products are q·k plus the padding score.
    """
    ones = q.new_ones(()).expand(*q.shape[:-1], 1)
    # B×1×1×S -> B×H×S×1
    column = padding.transpose(-2, -1).expand(*k.shape[:-1], 1)
    return torch.cat((q, ones), -1), torch.cat((k, column), -1)


ATTENTION_BACKENDS.register(Sdpa.name)(Sdpa())
