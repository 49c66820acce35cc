"""Attention written out: scores, softmax, weights. The oracle of every other backend."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from ..position.tables import widened
from .backend import ATTENTION_BACKENDS, Backend


class Eager(Backend):
    """Serves every encoding and returns the attention weights."""

    name = "eager"
    speed = 0

    def prepare(self, score, padding_mask, dtype):
        bias = None if score is None else score.dense()
        # B×S -> B×1×1×S
        padding = None if padding_mask is None else padding_mask[:, None, None, :]
        return bias, padding

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
        dropped = F.dropout(weights, layer.dropout, layer.training)
        # B×H×T×S · B×H×S×D -> B×H×T×D
        out = dropped @ v
        if terms is not None and terms.adds_value:
            out = out + terms.value(dropped)
        return out, weights if shared.need_weights else None


ATTENTION_BACKENDS.register(Eager.name)(Eager())
