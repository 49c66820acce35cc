"""KERPLE (Chi et al. 2022): kernels of the distance, added to the scores of every layer.

`kerple_log`:    score_ij = x_i W^Q (x_j W^K)ᵀ / √D − p·ln(1 + a·|i − j|)
`kerple_power`:  score_ij = x_i W^Q (x_j W^K)ᵀ / √D − a·|i − j|^p

p and a are learned for each head and shared by the layers. They start uniformly distributed, p
over (0, 2) and a over (0, 1), and act as at least 0.01, for the power kernel p as at most 2. Their
names differ between the kernels, so that a checkpoint of one is not loaded as the other.
As in the released code under fp16, a bound changes neither the stored parameter nor its gradient.
The paper's models are causal; here an encoder uses the same distance on both sides.
"""

import torch
from torch import Tensor, nn

from .base import Shape, register_position_encoding
from .distance_bias import BiasByDistance
from .dtypes import widened

#: The least value of p and a, and the largest exponent of a kernel that is conditionally positive
#: definite.
LEAST = 0.01
LARGEST_POWER = 2.0


@register_position_encoding("kerple_log")
class KerpleLog(BiasByDistance):
    """The logarithmic kernel, the better one in the paper: p is `strength`, a is `rate`."""

    def __init__(self, shape: Shape):
        super().__init__(shape)
        self.strength = uniform(shape.num_heads, 2)
        self.rate = uniform(shape.num_heads, 1)

    def bias(self, distance: Tensor) -> Tensor:
        # H×1 · 1×N
        return -bounded(self.strength) * torch.log1p(bounded(self.rate) * distance.abs())


@register_position_encoding("kerple_power")
class KerplePower(BiasByDistance):
    """The power kernel, for p = 1 ALiBi with learned slopes: p is `exponent`, a is `slope`."""

    def __init__(self, shape: Shape):
        super().__init__(shape)
        self.exponent = uniform(shape.num_heads, 2)
        self.slope = uniform(shape.num_heads, 1)

    def bias(self, distance: Tensor) -> Tensor:
        # H×1 · 1×N
        exponent = bounded(self.exponent, LARGEST_POWER)
        return -bounded(self.slope) * distance.abs().to(exponent.dtype) ** exponent


def uniform(heads: int, top: float) -> nn.Parameter:
    """A number per head, from U(0, top)."""
    return nn.Parameter(top * torch.rand(heads))


def bounded(parameter: Tensor, most: float | None = None) -> Tensor:
    """The parameter within its bounds, H×1; the gradient is that of the parameter itself."""
    value = parameter.to(widened(parameter.dtype))[:, None]
    return value + (value.clamp(LEAST, most) - value).detach()
