"""Learned positions at the input and T5's bias (Song et al. 2020, "MPNet"; the released models).

score_ij = (x+p)_i W^Q ((x+p)_j W^K)ᵀ / √D + b_bucket(j−i): `learned` and `t5` together.
"""

from torch import Tensor

from .base import Shape, register_position_encoding
from .distance_bias import BiasByDistance
from .learned import LearnedPosition
from .t5 import MaxDistance, NumBuckets, RelativeBias


@register_position_encoding("mpnet")
class MPNetPosition(LearnedPosition, BiasByDistance):
    """A table of position embeddings, and one of the bias for all layers."""

    def __init__(
        self,
        shape: Shape,
        *,
        num_buckets: NumBuckets = 32,
        max_distance: MaxDistance = 128,
    ):
        super().__init__(shape)
        self.relative_bias = RelativeBias(shape, num_buckets, max_distance)

    def bias(self, distance: Tensor) -> Tensor:
        return self.relative_bias.by_distance(distance)
