"""Positions ride on the vectors, so that a fused kernel without any mask computes TUPE-A exactly.

[q_i; p_i U^Q/√(2D)] · [k_j; p_j U^K] is the score of TUPE-A; the reset of [CLS] is two of those
dimensions (`PositionalScore.with_untied_cls`), and padding one more: 1 on the query, a large
negative number on the key. No T×T tensor exists, and dropout is the kernel's own.
"""

from __future__ import annotations

from .backend import ATTENTION_BACKENDS, Backend
from .fused import fused_attention, padding_scores


class Flash(Backend):
    """For GPUs: encodings without a score term, or with one that is a product of vectors."""

    name = "flash"

    def speed(self, device):
        return 2 if device == "cuda" else 0.5

    def refuses(self, encoding, terms, need_weights):
        if need_weights:
            return "it does not return attention weights"
        if terms is not None:
            return "it cannot add a positional term that depends on content"
        if encoding.uses("score") and not encoding.score_is_product:
            return "its vectors cannot carry a bias by distance"
        return None

    def prepare(self, score, layout, heads, dtype):
        padding = padding_scores(layout.padding_mask, dtype)
        if score is None:
            return None, None, padding
        # H×T×E -> 1×H×T×E
        return score.queries.to(dtype)[None], score.keys.to(dtype)[None], padding

    def attend(self, q, k, v, shared, layer):
        positions_q, positions_k, padding = shared.prepared
        queries, keys = [q], [k]
        if positions_q is not None:
            queries.append(positions_q.expand(len(q), -1, -1, -1))
            keys.append(positions_k.expand(len(k), -1, -1, -1))
        dropout = layer.dropout if layer.training else 0.0
        return fused_attention(queries, keys, v, dropout=dropout, padding=padding), None


ATTENTION_BACKENDS.register(Flash.name)(Flash())
