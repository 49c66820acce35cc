"""TUPE-A by a fused kernel without a mask: positions are dimensions of queries and keys.

[q_i; p_i U^Q/√(2D)] · [k_j; p_j U^K] is the score of TUPE-A. Two of these dimensions untie [CLS]
(`AttentionBias.with_untied_cls`), one more masks padding: 1 in the query, a large negative
number in the key. No T×T tensor exists, and dropout is the kernel's own.
"""

from typing import Any

import torch
from torch import Tensor

from ..position.bias import AttentionBias
from ..position.relative import RelativeVectors
from .backend import ATTENTION_BACKENDS, Backend, Feature, Prepared
from .fused import fused_attention, padding_scores
from .layout import Layout


class Flash(Backend):
    """For GPUs: encodings without a bias, or with one that is a product of vectors."""

    name = "flash"
    supports = frozenset({Feature.COMPILED})

    def prepare(
        self, bias: AttentionBias | None, layout: Layout, heads: int, dtype: torch.dtype
    ) -> Any:
        padding = padding_scores(layout.padding_mask, dtype)
        if bias is None:
            return None, None, padding
        # H×T×E -> 1×H×T×E
        parts = bias.to(dtype).parts()
        return parts["queries"][None], parts["keys"][None], padding

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        prepared: Prepared,
        p: float,
        relative: RelativeVectors | None = None,
    ) -> Tensor:
        positions_q, positions_k, padding = prepared.inputs
        queries, keys = [q], [k]
        if positions_q is not None:
            queries.append(positions_q.expand(len(q), -1, -1, -1))
            keys.append(positions_k.expand(len(k), -1, -1, -1))
        return fused_attention(queries, keys, v, dropout=p, padding=padding)


ATTENTION_BACKENDS.register(Flash.name)(Flash())
