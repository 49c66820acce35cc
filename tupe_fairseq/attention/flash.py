"""Positions ride on the vectors, so that a fused kernel without any mask computes TUPE-A exactly.

[q_i; p_i U^Q/√(2D)] · [k_j; p_j U^K] is the score of TUPE-A; the reset of [CLS] is two of those
dimensions (`PositionalScore.with_untied_cls`), and padding one more: 1 on the query, a large
negative number on the key. No T×T tensor exists, and dropout is the kernel's own.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .backend import ATTENTION_BACKENDS, Backend
from .sdpa import padding_scores

#: Widths of the vectors that flash kernels take without copying them.
MULTIPLE = 8


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
        dropout = layer.dropout if layer.training else 0.0
        queries, keys = [q], [k]
        if positions_q is not None:
            queries.append(positions_q.expand(len(q), -1, -1, -1))
            keys.append(positions_k.expand(len(k), -1, -1, -1))
        if padding is not None:
            queries.append(q.new_ones(()).expand(*q.shape[:-1], 1))
            # B×1×1×S -> B×H×S×1
            keys.append(padding.mT.expand(*k.shape[:-1], 1))
        if len(queries) == 1:
            return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, scale=1.0), None
        width = sum(part.size(-1) for part in queries)
        width += -width % MULTIPLE
        # Flash kernels want values as wide as keys.
        out = F.scaled_dot_product_attention(
            *(_joined(parts, width) for parts in (queries, keys, [v])),
            dropout_p=dropout,
            scale=1.0,
        )
        return out[..., : v.size(-1)], None


def _joined(parts: list[Tensor], width: int) -> Tensor:
    """Side by side, with zeros up to the width."""
    joined = torch.cat(parts, -1) if len(parts) > 1 else parts[0]
    return F.pad(joined, (0, width - joined.size(-1)))


ATTENTION_BACKENDS.register(Flash.name)(Flash())
