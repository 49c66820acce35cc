"""Extrapolatable positions (Sun et al. 2022, xPos): rotations whose products decay with distance.

score_ij = (R_i ζ^{i/512} q_i) · (R_j ζ^{−j/512} k_j) / √D with ζ_d = (2d + 0.4·D) / (1.4·D) for
pair d: the rotation R of `rope`, and products of pairs times ζ_d^{(i−j)/512}, which is at most 1
for keys on the left. For keys on the right it grows without bound, so xpos is for decoders.

Positions are counted from the middle of --max-positions, as torchscale counts from the middle of
the sequence: products are the same, and the powers stay closer to 1.
"""

import math
from typing import Annotated

import torch
from torch import Tensor

from ..base.errors import ConfigurationError
from ..kernels.rotation import rotate
from .base import PositionEncoding, Shape, check_at_least, register_position_encoding
from .rope import RopeTheta, check_rotation
from .rope_scaling import frequencies
from .tables import ConstantTable

#: Decimal exponent of the largest power of ζ that queries are multiplied by and keys divided by.
LARGEST = 15
#: In fp16, whose range must hold the products.
LARGEST_FP16 = 3


@register_position_encoding("xpos")
class ExtrapolatablePosition(PositionEncoding):
    """Has no parameters; the rotation of any position can be computed."""

    causal_only = True

    def __init__(
        self,
        shape: Shape,
        *,
        rope_theta: RopeTheta = 10000.0,
        xpos_scale_base: Annotated[int, "distance over which products decay by ζ"] = 512,
    ):
        super().__init__(shape)
        check_rotation("xpos", shape, rope_theta)
        check_at_least("--xpos-scale-base", xpos_scale_base, 1)
        width = shape.head_dim
        zeta = (torch.arange(0, width, 2, dtype=torch.float64) + 0.4 * width) / (1.4 * width)
        positions = torch.arange(shape.max_positions, dtype=torch.float64)[:, None]
        powers = zeta ** ((positions - shape.max_positions // 2) / xpos_scale_base)
        # ζ_0 = 0.4/1.4, at the first position.
        self.largest = math.log10(3.5) * (shape.max_positions // 2) / xpos_scale_base
        self.scale_base = xpos_scale_base
        self._check_range(LARGEST, "make it larger")
        # N×1 · 1×(D/2)
        angles = positions * frequencies(rope_theta, width)
        self.cos_q = ConstantTable(angles.cos() * powers)
        self.sin_q = ConstantTable(angles.sin() * powers)
        self.cos_k = ConstantTable(angles.cos() / powers)
        self.sin_k = ConstantTable(angles.sin() / powers)

    def _check_range(self, largest: int, remedy: str) -> None:
        if self.largest > largest:
            raise ConfigurationError(
                f"--xpos-scale-base {self.scale_base} is too small for "
                f"{self.shape.max_positions} positions: powers of the decay reach "
                f"10^{self.largest:.0f}, and at most 10^{largest} are accurate here; {remedy}."
            )

    def rotate(
        self, q: Tensor, k: Tensor, v: Tensor, start: int = 0
    ) -> tuple[Tensor, Tensor, Tensor]:
        if q.dtype == torch.float16:
            self._check_range(LARGEST_FP16, "make it larger, or use bf16 instead of fp16")
        dtype = q.dtype
        positions = slice(start, start + q.size(2))
        turned_q = rotate(q, self.cos_q(dtype, positions), self.sin_q(dtype, positions))
        turned_k = rotate(k, self.cos_k(dtype, positions), self.sin_k(dtype, positions))
        return turned_q, turned_k, v
