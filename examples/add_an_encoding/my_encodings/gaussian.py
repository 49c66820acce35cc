"""A Gaussian prior on the distance, after Guo et al., AAAI 2019: score_ij − |w (i − j)² + b|."""

from typing import Annotated

import torch
from torch import nn

from tupe_fairseq import PositionEncoding, Shape, register_position_encoding
from tupe_fairseq.position import AttentionBias
from tupe_fairseq.position.indices import distances


@register_position_encoding("gaussian")
class GaussianPosition(PositionEncoding):
    """Two learned numbers per head, shared by all layers."""

    def __init__(
        self,
        shape: Shape,
        *,
        gaussian_width: Annotated[float, "initial standard deviation, in tokens"] = 8.0,
    ):
        super().__init__(shape)
        self.w = nn.Parameter(torch.full((shape.num_heads, 1), 0.5 / gaussian_width**2))
        self.b = nn.Parameter(torch.zeros(shape.num_heads, 1))

    def attention_bias(self, queries, keys, start=0):
        distance = distances(queries, keys, start, device=self.w.device)
        # H×1 and (T+S−1) -> H×(T+S−1), one value per distance
        bias = -(self.w.float() * distance**2 + self.b.float()).abs()
        return AttentionBias(keys, by_distance=bias, start=start)
