"""Rotary positions (Su et al. 2021, RoFormer): queries and keys are rotated by their position.

Equation 15: the pair (x_{2i}, x_{2i+1}) at position k is rotated by k·θ_i, θ_i = 10000^{−2i/D}, so
q_m · k_n depends on m − n only. Pairs are neighbouring dimensions, as in the paper; some libraries
pair dimension i with i + D/2, which permutes the rows of W^Q and W^K.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from ..errors import ConfigurationError
from .base import PositionEncoding, Shape, register_position_encoding
from .tables import ConstantTable


@register_position_encoding("rope")
class RotaryPosition(PositionEncoding):
    """Has no parameters; the rotation of any position can be computed."""

    enters = "query, key"
    paper = "Su 2021"

    def __init__(
        self,
        shape: Shape,
        *,
        rope_theta: Annotated[float, "base of the rotation frequencies"] = 10000.0,
        rope_values: Annotated[bool, "rotate the values too"] = False,
    ):
        super().__init__(shape)
        if shape.head_dim % 2:
            raise ConfigurationError(
                f"rope rotates pairs: the head width must be even, but is {shape.head_dim}."
            )
        if rope_theta <= 0:
            raise ConfigurationError(f"--rope-theta must be positive, but is {rope_theta}.")
        self.rope_values = rope_values
        pairs = torch.arange(0, shape.head_dim, 2, dtype=torch.float64)
        positions = torch.arange(shape.max_positions, dtype=torch.float64)
        # N×1 · 1×(D/2)
        angles = positions[:, None] * rope_theta ** (-pairs / shape.head_dim)
        self.cos = ConstantTable(angles.cos())
        self.sin = ConstantTable(angles.sin())

    def rotate(self, q, k, v, start=0):
        values = self._turn(v, start) if self.rope_values else v
        return self._turn(q, start), self._turn(k, start), values

    def _turn(self, x: Tensor, start: int) -> Tensor:
        stop = start + x.size(2)
        cos, sin = self.cos(x.dtype, start, stop), self.sin(x.dtype, start, stop)
        # B×H×T×D -> two of B×H×T×(D/2), widened by the tables
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1)
        return turned.flatten(-2).type_as(x)
