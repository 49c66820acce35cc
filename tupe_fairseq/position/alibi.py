"""Attention with linear biases (Press et al. 2022): score_ij − m_h |i − j|.

The slopes are the paper's geometric sequence, m_h = 2^{−8h/H} for h = 1, ..., H; its code differs
where H is not a power of two. The paper is causal; |i − j| is the symmetric form.
"""

from __future__ import annotations

import torch

from .base import PositionEncoding, Shape, register_position_encoding
from .indices import distances
from .score import PositionalScore
from .tables import ConstantTable


@register_position_encoding("alibi")
class Alibi(PositionEncoding):
    """Has no parameters."""

    enters = "score"
    paper = "Press 2022"
    in_decoder = "causal, as in the paper"

    def __init__(self, shape: Shape):
        super().__init__(shape)
        heads = torch.arange(1, shape.num_heads + 1, dtype=torch.float64)
        self.slopes = ConstantTable(2 ** (-8 * heads / shape.num_heads))

    def score(self, queries: int, keys: int, start: int = 0) -> PositionalScore:
        slopes = self.slopes(torch.float32)
        distance = distances(queries, keys, start, device=slopes.device)
        # H×1 · 1×(T+S−1)
        bias = -slopes[:, None] * distance.abs()
        return PositionalScore(keys, by_distance=bias, start=start)
