"""Relative position bias (Raffel et al. 2019): score_ij = x_i W^Q (x_j W^K)ᵀ / √D + b_bucket(j−i).

The paper's BERT-R. One table for all layers, one value per bucket and head. T5 itself omits
1/√D and scales its initialisation instead; here the scale is that of the other encodings.
"""

from typing import Annotated

import torch
from torch import Tensor, nn

from .base import Shape, register_position_encoding
from .distance_bias import BiasByDistance
from .dtypes import widened
from .indices import relative_buckets
from .initial import random_vectors

NumBuckets = Annotated[int, "buckets of relative positions, over both directions"]
MaxDistance = Annotated[int, "distance from which all relative positions share a bucket"]


class RelativeBias(nn.Module):
    """The table b, shared by all layers; with `untie_cls` also rows for [CLS], see `cls`.

    Raises:
        ConfigurationError: T5's formula is not defined for these numbers.
    """

    buckets: Tensor

    def __init__(self, shape: Shape, num_buckets: int, max_distance: int, untie_cls: bool = False):
        super().__init__()
        # Distances beyond max_distance are in its bucket. The buckets refuse a negative one.
        self.max_distance = max_distance
        far = abs(max_distance)
        reach = torch.arange(-far, far + 1)
        buckets = relative_buckets(reach, num_buckets, max_distance, shape.bidirectional)
        self.register_buffer("buckets", buckets, persistent=False)
        # Of buckets in both directions, none reaches num_buckets/2 (distance 0 is in the lower
        # half), so that row serves [CLS] -> others, as in the official release of TUPE.
        self.from_cls = num_buckets // 2 if shape.bidirectional else num_buckets
        self.to_cls = num_buckets if shape.bidirectional else num_buckets + 1
        rows = self.to_cls + 1 if untie_cls else num_buckets
        self.weight = random_vectors(rows, shape.num_heads)

    def by_distance(self, distance: Tensor) -> Tensor:
        """The bias of distances j − i: N -> H×N."""
        far = self.max_distance
        return self._values()[self.buckets[distance.clamp(-far, far) + far]].t()

    def cls(self) -> Tensor:
        """The bias of [CLS] -> others and of others -> [CLS], H×2."""
        return self._values()[self.from_cls :: self.to_cls - self.from_cls].t()

    def _values(self) -> Tensor:
        return self.weight.to(widened(self.weight.dtype))


@register_position_encoding("t5")
class T5Bias(BiasByDistance):
    """A bias per bucket of distances, added to the scores of every layer."""

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
