"""A bias by clipped distance, into which TUPE's positional term folds.

score_ij = x_i W^Q (x_j W^K)ᵀ / √(2D) + b_{clip(j−i)} − s ln(max(|j−i|, c) / c)

One learned value for each head and each distance up to c, as in Raffel et al. 2019 with a bucket
for each distance, and clipped as in Shaw et al. 2018: clip(d) = max(−c, min(d, c)). All layers
share the values. c is --toeplitz-far and s is --toeplitz-slope, which is not learned.
With [CLS] untied as in TUPE (Ke et al. 2021), b is replaced by θ for j = 0 and i > 0, and by 0 for
i = 0: any constant there has no effect, because softmax is shift-invariant.

The scale is that of TUPE, so that all other parameters of a TUPE checkpoint stay as they are when
`scripts/convert_checkpoint.py --to toeplitz` replaces its term by the means of by_distance.py.
"""

from typing import Annotated

import torch

from .base import PositionEncoding, Shape, check_at_least, register_position_encoding
from .bias import AttentionBias
from .by_distance import FAR, ToeplitzSlope, bias_by_distance
from .tables import random_vectors, widened
from .tupe import TieCls


@register_position_encoding("toeplitz")
class ToeplitzBias(PositionEncoding):
    """A value for each clipped distance, and for an untied [CLS].

    Columns of the table `weight`: the distances −c, ..., c, one-sided −c, ..., 0; then θ if [CLS]
    is untied.
    """

    score_terms = 2

    def __init__(
        self,
        shape: Shape,
        *,
        tie_cls: TieCls = False,
        toeplitz_far: Annotated[int, FAR] = 128,
        toeplitz_slope: ToeplitzSlope = 1.0,
    ):
        super().__init__(shape)
        check_at_least("--toeplitz-far", toeplitz_far, 1)
        check_at_least("--toeplitz-slope", toeplitz_slope, 0)
        self.untie_cls = not tie_cls
        self.far, self.slope = toeplitz_far, toeplitz_slope
        self.distances = (2 if shape.bidirectional else 1) * toeplitz_far + 1
        # H×R
        self.weight = random_vectors(shape.num_heads, self.distances + self.untie_cls)

    def attention_bias(self, queries: int, keys: int, start: int = 0) -> AttentionBias:
        table = self.weight.to(widened(self.weight.dtype))
        values, to_cls = table[:, : self.distances], table[:, -1]
        cls = (torch.zeros_like(to_cls), to_cls) if self.untie_cls else None
        return bias_by_distance(values, self.far, self.slope, queries, keys, start, cls)
