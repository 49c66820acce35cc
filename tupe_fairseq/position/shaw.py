"""Relative position representations (Shaw et al. 2018): vectors per clipped distance.

score_ij = x_i W^Q (x_j W^K + R^K_{clip(i−j)})ᵀ / √D, equation 4; output_i = Σ_j a_ij (x_j W^V +
R^V_{clip(i−j)}), equation 3. The vectors are shared by the heads, not by the layers.
Implementations that count j − i have the rows of both tables in reverse order.
"""

from typing import Annotated, Any

from .base import PositionEncoding, Shape, check_at_least, register_position_encoding
from .initial import random_vectors
from .layer_terms import LayerTerms
from .relative import ByDistance, RelativeVectors

RelativeClip = Annotated[int, "largest distance with a vector of its own"]


class ShawTerms(LayerTerms):
    """R^K and R^V of one layer; row r belongs to distance i − j = r + lowest.

    `lowest` is −clip, and 0 where one-sided: keys to the right, if any, count as the query itself.
    """

    has_values = True

    def __init__(self, shape: Shape, clip: int):
        super().__init__()
        self.lowest = -clip if shape.bidirectional else 0
        self.clip = clip
        rows = clip - self.lowest + 1
        self.key = random_vectors(rows, shape.head_dim)
        self.value_weight = random_vectors(rows, shape.head_dim)

    def relative(self, encoding: Any, length: int, attention: Any = None) -> RelativeVectors:
        # Distances j − i ascend where i − j descends.
        tables = self.key, self.value_weight
        keys, values = (ByDistance(table.flip(0)[None], -self.clip) for table in tables)
        return RelativeVectors(keys, for_values=values)


@register_position_encoding("shaw")
class ShawPosition(PositionEncoding):
    """Added to keys and values in every layer, without a T×T×D tensor."""

    def __init__(
        self,
        shape: Shape,
        *,
        relative_clip: RelativeClip = 16,
    ):
        super().__init__(shape)
        check_at_least("--relative-clip", relative_clip, 1)
        self.relative_clip = relative_clip

    def build_layer_terms(self) -> ShawTerms:
        return ShawTerms(self.shape, self.relative_clip)
