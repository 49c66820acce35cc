"""Attention of a decoder over what the encoder has read."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..kernels.dropout import dropout
from ..position.tables import widened
from .fused import fused_attention


@dataclass(frozen=True)
class Source:
    """What the encoder has read.

    Attributes:
        vectors: its output, B×S×C.
        seen: B×1×1×S, False at padding; None where there is none.
    """

    vectors: Tensor
    seen: Tensor | None = None


class CrossAttention(nn.Module):
    """Queries from the decoder, keys and values from the encoder; no positions.

    score_ij = x_i W^Q (y_j W^K)ᵀ / √D (Vaswani et al. 2017). Parameters carry fairseq's names.

    Args:
        embed_dim: width of the decoder C.
        num_heads: heads H, a divisor of C.
        source_dim: width of the encoder.
        dropout: probability of dropping an attention weight.
    """

    def __init__(self, embed_dim: int, num_heads: int, source_dim: int, dropout: float = 0.0):
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        self.scaling = (embed_dim // num_heads) ** -0.5
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(source_dim, embed_dim)
        self.v_proj = nn.Linear(source_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        # As fairseq does: smaller for q, k, v where they are one matrix in spirit.
        gain = 2**-0.5 if source_dim == embed_dim else 1.0
        for proj in (self.q_proj, self.k_proj, self.v_proj):
            nn.init.xavier_uniform_(proj.weight, gain=gain)
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)

    def project(self, source: Source) -> tuple[Tensor, Tensor]:
        """Keys and values of the source, B×H×S×D each."""
        return self._per_head(self.k_proj(source.vectors)), self._per_head(
            self.v_proj(source.vectors)
        )

    def forward(
        self,
        x: Tensor,
        source: Source,
        projected: tuple[Tensor, Tensor] | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend.

        Args:
            x: n·B×T×C; n hypotheses that follow each other share one source sentence.
            source: what the encoder has read.
            projected: what `project` made of it; made here where None.
            need_weights: whether to return the attention weights.

        Returns:
            The output, n·B×T×C, and the weights, n·B×H×T×S, or None.
        """
        k, v = self.project(source) if projected is None else projected
        # n·B×T×C -> B×n·T×C -> B×H×n·T×D
        q = self._per_head((self.q_proj(x) * self.scaling).view(len(k), -1, x.size(-1)))
        p = self.dropout if self.training else 0.0
        weights = None
        if need_weights or p > 0:
            weights = self._weights(q, k, source.seen)
            out = (dropout(weights, p) if p else weights) @ v
        else:
            out = fused_attention([q], [k], v, source.seen)
        # B×H×n·T×D -> n·B×T×C
        out = self.out_proj(out.transpose(1, 2).reshape(x.shape))
        return out, self._per_hypothesis(weights, x) if need_weights else None

    def _weights(self, q: Tensor, k: Tensor, seen: Tensor | None) -> Tensor:
        scores = q @ k.mT
        if seen is not None:
            scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
        return scores.softmax(-1, dtype=widened(scores.dtype)).type_as(k)

    def _per_hypothesis(self, weights: Tensor, x: Tensor) -> Tensor:
        # B×H×n·T×S -> B×n×H×T×S -> n·B×H×T×S
        by_hypothesis = weights.unflatten(2, (-1, x.size(1))).transpose(1, 2)
        return by_hypothesis.flatten(0, 1)

    def _per_head(self, x: Tensor) -> Tensor:
        # B×S×C -> B×H×S×D
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
