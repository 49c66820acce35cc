"""The four projections of an attention, with fairseq's names and initialisation."""

from torch import Tensor, nn


class Projections(nn.Module):
    """Base class of self- and cross-attention.

    Args:
        embed_dim: width of the queries and of the output C.
        num_heads: heads H, a divisor of C.
        source_dim: width of what keys and values are projected from.
        dropout: probability of dropping an attention weight.
        bias: whether the projections have one.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        source_dim: int,
        dropout: float = 0.0,
        bias: bool = True,
    ):
        super().__init__()
        self.num_heads = num_heads
        self.dropout = dropout
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias)
        self.k_proj = nn.Linear(source_dim, embed_dim, bias)
        self.v_proj = nn.Linear(source_dim, embed_dim, bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias)
        # As fairseq does, with a gain of 1/√2 where q, k and v have the same shape.
        gain = 2**-0.5 if source_dim == embed_dim else 1.0
        for proj in (self.q_proj, self.k_proj, self.v_proj):
            nn.init.xavier_uniform_(proj.weight, gain=gain)
        nn.init.xavier_uniform_(self.out_proj.weight)
        if bias:
            nn.init.zeros_(self.out_proj.bias)

    def per_head(self, x: Tensor) -> Tensor:
        """B×T×C -> B×H×T×D, a view."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
