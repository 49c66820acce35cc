"""Multiplicative absolute positions (Su 2021): x ⊗ p_k at the input, p initialised around 1."""

import torch
from torch import Tensor, nn

from .base import PositionEncoding, Shape, register_position_encoding


@register_position_encoding("multiplicative")
class MultiplicativePosition(PositionEncoding):
    """A learned table that scales token embeddings instead of being added to them."""

    def __init__(self, shape: Shape):
        super().__init__(shape)
        self.weight = nn.Parameter(torch.empty(shape.max_positions, shape.embed_dim))
        nn.init.normal_(self.weight, mean=1.0, std=0.02)

    def position_tables(self) -> dict[str, int]:
        return {"weight": 0}

    def embed(
        self, x: Tensor, tokens: object = None, padding_mask: object = None, start: int = 0
    ) -> Tensor:
        return x * self.weight[start : start + x.size(1)]
