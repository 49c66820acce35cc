"""A Gaussian prior on the distance, after Guo et al., AAAI 2019: score_ij − |w (i − j)² + b|."""

from typing import Annotated

import torch
from torch import nn

from tupe_fairseq import Shape, register_position_encoding
from tupe_fairseq.position.base import check_at_least
from tupe_fairseq.position.distance_bias import BiasByDistance
from tupe_fairseq.position.dtypes import widened


@register_position_encoding("gaussian")
class GaussianPosition(BiasByDistance):
    """Two learned numbers per head, shared by all layers."""

    def __init__(
        self,
        shape: Shape,
        *,
        gaussian_width: Annotated[float, "initial standard deviation, in tokens"] = 8.0,
    ):
        super().__init__(shape)
        check_at_least("--gaussian-width", gaussian_width, 0.01)
        self.w = nn.Parameter(torch.full((shape.num_heads, 1), 0.5 / gaussian_width**2))
        self.b = nn.Parameter(torch.zeros(shape.num_heads, 1))

    def bias(self, distance):
        # H×1 and N -> H×N, one value per distance
        w, b = (p.to(widened(p.dtype)) for p in (self.w, self.b))
        return -(w * distance**2 + b).abs()
