"""KERPLE's logarithmic kernel (Chi et al., NeurIPS 2022): score_ij − r1 · log(1 + r2 |i − j|)."""

from typing import Annotated

import torch
from torch import nn

from tupe_fairseq import PositionEncoding, Shape, register_position_encoding
from tupe_fairseq.position import PositionalScore
from tupe_fairseq.position.indices import distances


@register_position_encoding("kerple_log")
class KerpleLog(PositionEncoding):
    """Two learned positive numbers per head, shared by all layers."""

    enters = "score"
    paper = "Chi 2022"

    def __init__(
        self,
        shape: Shape,
        *,
        kerple_scale: Annotated[float, "initial r1 of all heads"] = 1.0,
    ):
        super().__init__(shape)
        self.log_r1 = nn.Parameter(torch.full((shape.num_heads, 1), kerple_scale).log())
        self.log_r2 = nn.Parameter(torch.zeros(shape.num_heads, 1))

    def score(self, queries, keys, start=0):
        reach = distances(queries, keys, start, device=self.log_r1.device).abs()
        # H×1 and (T+S−1) -> H×(T+S−1), one value per distance
        bias = -self.log_r1.exp() * torch.log1p(self.log_r2.exp() * reach)
        return PositionalScore(keys, by_distance=bias.float(), start=start)
