"""Sandwich (Chi et al. 2023): products of sinusoids as a bias by distance.

score_ij = x_i W^Q (x_j W^K)ᵀ / √D + H/(8h) · (Σ_{k=1}^{d/2} cos((i − j) / 10000^(2k/d)) − d/2)

for heads h = 1, ..., H. The sum is the product of the sinusoids of positions i and j. Its width
d = 128 does not depend on the model. −d/2 makes the bias 0 at distance 0, as in NVIDIA's NeMo;
softmax does not depend on it. The paper's models are causal; the bias is the same on both sides.
"""

from typing import Annotated

import torch
from torch import Tensor

from ..base.errors import ConfigurationError
from .base import Shape, register_position_encoding
from .distance_bias import BiasByDistance
from .tables import ConstantTable


@register_position_encoding("sandwich")
class SandwichPosition(BiasByDistance):
    """Has no parameters; any length can be computed."""

    def __init__(
        self,
        shape: Shape,
        *,
        sandwich_width: Annotated[int, "width d of the sinusoids, even"] = 128,
    ):
        super().__init__(shape)
        if sandwich_width < 2 or sandwich_width % 2:
            raise ConfigurationError(
                f"--sandwich-width must be even and at least 2, but is {sandwich_width}."
            )
        self.curve = ConstantTable(curve(torch.arange(shape.max_positions), sandwich_width))
        heads = torch.arange(1, shape.num_heads + 1, dtype=torch.float64)
        self.strengths = ConstantTable(shape.num_heads / (8 * heads))

    def bias(self, distance: Tensor) -> Tensor:
        # H×1 · 1×N
        return self.strengths(torch.float32)[:, None] * self.curve(torch.float32)[distance.abs()]


def curve(distance: Tensor, width: int) -> Tensor:
    """Σ_{k=1}^{d/2} (cos(distance / 10000^(2k/d)) − 1) at N distances: N, fp64."""
    pairs = torch.arange(1, width // 2 + 1, dtype=torch.float64)
    # N×1 · 1×(d/2)
    return (torch.cos(distance[:, None] * 10000 ** (-2 * pairs / width)) - 1).sum(1)
