"""Attention written out: scores, softmax, weights. The oracle of every other backend."""

from __future__ import annotations

import torch

from ..kernels.dropout import dropout
from ..position.tables import widened
from .backend import ATTENTION_BACKENDS, Backend


class Eager(Backend):
    """Serves every encoding and returns the attention weights."""

    name = "eager"
    causal = True

    def prepare(self, score, layout, heads, dtype):
        bias = None if score is None else score.dense()
        mask = layout.padding_mask
        # B×S -> B×1×1×S
        return bias, None if mask is None else mask[:, None, None, :]

    def attend(self, q, k, v, shared, layer):
        bias, padding = shared.prepared
        # B×H×T×D · B×H×D×S -> B×H×T×S
        scores = q @ k.transpose(-2, -1)
        terms = layer.layer_terms
        if terms is not None and terms.adds_score:
            scores = scores + terms.score(q, k, shared.encoding)
        if bias is not None:
            scores = scores + bias
        if padding is not None:
            # Not −inf: a row in which every key is padding would become NaN.
            scores = scores.masked_fill(padding, torch.finfo(scores.dtype).min)
        # In half precision the sum over many small exponentials loses them: softmax in fp32.
        weights = scores.softmax(dim=-1, dtype=widened(scores.dtype))
        weights = weights.type_as(v)
        dropped = dropout(weights, layer.dropout) if layer.training else weights
        # B×H×T×S · B×H×S×D -> B×H×T×D
        out = dropped @ v
        if terms is not None and terms.adds_value:
            out = out + terms.value(dropped)
        return out, weights if shared.need_weights else None


ATTENTION_BACKENDS.register(Eager.name)(Eager())
