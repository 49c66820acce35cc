"""Multihead self-attention whose positions come from an encoding."""

from __future__ import annotations

from torch import Tensor, nn

from ..errors import UsageError
from ..position.base import LayerTerms
from .backend import SharedAttention


class TupeMultiheadAttention(nn.Module):
    """Content projections, positional terms, one backend; batch first.

    score_ij = x_i W^Q (x_j W^K)ᵀ / √(score_terms·D) + terms of the encoding, which scales its own.
    Parameters carry fairseq's names: q_proj, k_proj, v_proj, out_proj.

    Args:
        embed_dim: model width C.
        num_heads: heads H, a divisor of C.
        dropout: probability of dropping an attention weight.
        score_terms: `score_terms` of the encoding.
        layer_terms: what `build_layer_terms` of the encoding returned for this layer.

    Raises:
        UsageError: num_heads does not divide embed_dim.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        score_terms: int = 1,
        layer_terms: LayerTerms | None = None,
    ):
        super().__init__()
        if embed_dim % num_heads:
            raise UsageError(f"num_heads must divide embed_dim {embed_dim}, but is {num_heads}.")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.scaling = (score_terms * self.head_dim) ** -0.5
        self.dropout = dropout
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        self.layer_terms = layer_terms
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise as fairseq does: Xavier, smaller for q, k, v (one matrix in spirit)."""
        for proj in (self.q_proj, self.k_proj, self.v_proj):
            nn.init.xavier_uniform_(proj.weight, gain=2**-0.5)
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)

    def forward(self, x: Tensor, shared: SharedAttention) -> tuple[Tensor, Tensor | None]:
        """Attend.

        Args:
            x: B×T×C.
            shared: what `share_attention` prepared for this forward pass.

        Returns:
            The output, B×T×C, and the attention weights, B×H×T×S, where `shared` asks for them.
        """
        q = self._split_heads(self.q_proj(x) * self.scaling)
        k = self._split_heads(self.k_proj(x))
        v = self._split_heads(self.v_proj(x))
        q, k, v = shared.encoding.rotate(q, k, v)
        out, weights = shared.backend.attend(q, k, v, shared, self)
        # B×H×T×D -> B×T×C
        return self.out_proj(out.transpose(1, 2).reshape(x.shape)), weights

    def _split_heads(self, x: Tensor) -> Tensor:
        # B×T×C -> B×T×H×D -> B×H×T×D
        return x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)
