"""Polar coordinate positions (Gopalakrishnan et al. 2025, PoPE): angles of positions alone.

score_ij = Σ_m sp(q_im) sp(k_jm) cos((j − i)·θ_m + δ_m) / √D with sp(z) = ln(1 + e^z), θ_m =
base^{−m/D} for each of the D dimensions of a head, and δ_m learned for each head, from −2π to 0.
Each dimension is thus a rotated pair, as in RoPE, whose angle does not depend on the content:
queries are (sp(q) cos iθ, sp(q) sin iθ), keys (sp(k) cos(jθ + δ), sp(k) sin(jθ + δ)).

Each layer has a δ, which starts at 0. As in KERPLE (kerple.py), its bounds change neither the
stored parameter nor its gradient: without gradient, a δ that leaves them would not come back.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .base import PositionEncoding, Shape, register_position_encoding
from .dtypes import widened
from .layer_terms import LayerTerms
from .rope import RopeTheta, check_base
from .tables import ConstantTable


class Phases(LayerTerms):
    """δ of one layer, H×1×D."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.phase = nn.Parameter(torch.zeros(shape.num_heads, 1, shape.head_dim))

    def rotate(
        self, q: Tensor, k: Tensor, v: Tensor, encoding: Any, start: int = 0
    ) -> tuple[Tensor, Tensor, Tensor]:
        scale = q.size(-1) ** 0.5
        positions = slice(start, start + q.size(2))
        # T×D each, in fp32 or wider
        cos = encoding.cos(q.dtype, positions)
        sin = encoding.sin(q.dtype, positions)
        phase = self.phase.to(widened(self.phase.dtype))
        phase = phase + (phase.clamp(-2 * math.pi, 0.0) - phase).detach()
        # The cosine and sine of jθ + δ, H×T×D each
        key_cos = cos * phase.cos() - sin * phase.sin()
        key_sin = sin * phase.cos() + cos * phase.sin()
        # Softplus of the queries before their scale
        lengths = F.softplus(q.to(cos.dtype) * scale) / scale, F.softplus(k.to(cos.dtype))
        wide_q, wide_k = (
            torch.cat((length * x, length * y), -1)
            for length, x, y in zip(lengths, (cos, key_cos), (sin, key_sin), strict=True)
        )
        return wide_q.type_as(q), wide_k.type_as(k), v


@register_position_encoding("pope")
class PolarPosition(PositionEncoding):
    """The angles are shared by the layers."""

    def __init__(self, shape: Shape, *, rope_theta: RopeTheta = 10000.0):
        super().__init__(shape)
        check_base(rope_theta)
        dimensions = torch.arange(shape.head_dim, dtype=torch.float64)
        positions = torch.arange(shape.max_positions, dtype=torch.float64)
        # N×1 · D
        angles = positions[:, None] * rope_theta ** (-dimensions / shape.head_dim)
        self.cos = ConstantTable(angles.cos())
        self.sin = ConstantTable(angles.sin())

    def build_layer_terms(self) -> Phases:
        return Phases(self.shape)
