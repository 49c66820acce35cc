"""Attention with linear biases (Press et al. 2022): score_ij − m_h |i − j|.

The slopes are the paper's geometric sequence, m_h = 2^{−8h/H} for h = 1, ..., H. Where H is not a
power of two, the paper's code takes those of the next smaller power of two a, and then every
second one of 2a (`--alibi-slopes official`). The paper is causal; |i − j| is the symmetric form.
With `--alibi-sides`, keys on the right get −m_h (|i − j| − ½), so that the sides differ.
"""

from typing import Annotated

import torch
from torch import Tensor

from ..base.errors import ConfigurationError
from .base import Shape, register_position_encoding
from .distance_bias import BiasByDistance
from .tables import ConstantTable


def geometric_slopes(heads: int) -> Tensor:
    """2^{−8h/H} for h = 1, ..., H, in fp64."""
    return 2 ** (-8 * torch.arange(1, heads + 1, dtype=torch.float64) / heads)


def official_slopes(heads: int) -> Tensor:
    """The slopes of the paper's code, H in fp64; the geometric ones where H is a power of two."""
    smaller = 1 << (heads.bit_length() - 1)
    between = geometric_slopes(2 * smaller)[::2]
    return torch.cat((geometric_slopes(smaller), between))[:heads]


#: Values of --alibi-slopes.
SLOPES = {"geometric": geometric_slopes, "official": official_slopes}


@register_position_encoding("alibi")
class Alibi(BiasByDistance):
    """Has no parameters."""

    def __init__(
        self,
        shape: Shape,
        *,
        alibi_slopes: Annotated[
            str,
            "slopes of the heads: geometric, or official, which differs if the number of heads is "
            "not a power of two",
        ] = "geometric",
        alibi_sides: Annotated[
            bool, "count keys on the right as half a token nearer, so that the sides differ"
        ] = False,
    ):
        super().__init__(shape)
        if alibi_slopes not in SLOPES:
            raise ConfigurationError(
                f"--alibi-slopes is {alibi_slopes!r}, but must be one of: {', '.join(SLOPES)}."
            )
        if alibi_sides and not shape.bidirectional:
            raise ConfigurationError(
                "--alibi-sides changes the bias of keys on the right, but a decoder masks them: "
                "use --no-alibi-sides."
            )
        self.alibi_sides = alibi_sides
        self.slopes = ConstantTable(SLOPES[alibi_slopes](shape.num_heads))

    def bias(self, distance: Tensor) -> Tensor:
        far = distance.abs()
        if self.alibi_sides:
            far = far - 0.5 * (distance > 0)
        # H×1 · 1×N
        return -self.slopes(torch.float32)[:, None] * far
