"""Universal relative positions (Luo et al. 2022, URPE): weights are also multiplied by position.

output_i = Σ_j a_ij C_{j−i} x_j W^V, where a_ij = softmax_j(x_i W^Q (x_j W^K)ᵀ / √D + b_{j−i}).
Rows of softmax ⊙ C need not sum to 1, so that the layers approximate functions that those with
relative positions in the scores alone cannot.

b and C are T5's tables (t5.py): a learned value for each bucket of distances and head, shared by
the layers. C starts at 1, with which attention is that of `t5`. The released code has buckets or
a value for each distance; a large --num-buckets gives each of the near distances its own.
"""

from torch import Tensor, nn

from .base import Shape, register_position_encoding
from .t5 import MaxDistance, NumBuckets, RelativeBias, T5Bias


@register_position_encoding("urpe")
class UniversalPosition(T5Bias):
    """b is `relative_bias`, C is `relative_factor`."""

    def __init__(
        self, shape: Shape, *, num_buckets: NumBuckets = 32, max_distance: MaxDistance = 128
    ):
        super().__init__(shape, num_buckets=num_buckets, max_distance=max_distance)
        self.relative_factor = RelativeBias(shape, num_buckets, max_distance)
        nn.init.ones_(self.relative_factor.weight)

    def weight_factor(self, queries: int, keys: int, start: int = 0) -> Tensor:
        device = self.relative_factor.buckets.device
        return self.relative_factor.by_distance(self.distances(queries, keys, start, device))
