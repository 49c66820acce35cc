"""Relative position representations (Shaw et al. 2018): vectors per clipped distance.

score_ij = x_i W^Q (x_j W^K + R^K_{clip(i−j)})ᵀ / √D, equation 4; output_i = Σ_j a_ij (x_j W^V +
R^V_{clip(i−j)}), equation 3. The vectors are shared by the heads, not by the layers.
Implementations that count j − i have the rows of both tables in reverse order.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn

from .base import PositionEncoding, Shape, check_at_least, register_position_encoding
from .layer_terms import LayerTerms
from .tables import collect, spread

RelativeClip = Annotated[int, "largest distance with a vector of its own"]


class ShawTerms(LayerTerms):
    """R^K and R^V of one layer; row r belongs to distance i − j = r + lowest.

    `lowest` is −clip, and 0 where one-sided: keys to the right, if any, count as the query itself.
    """

    adds_score = True
    adds_value = True

    def __init__(self, shape: Shape, clip: int):
        super().__init__()
        self.lowest, self.clip = -clip if shape.bidirectional else 0, clip
        rows = clip - self.lowest + 1
        self.key = nn.Parameter(torch.empty(rows, shape.head_dim))
        self.value_weight = nn.Parameter(torch.empty(rows, shape.head_dim))
        nn.init.normal_(self.key, std=0.02)
        nn.init.normal_(self.value_weight, std=0.02)

    def score(self, q, k, encoding, start=0, projected=None) -> Tensor:
        # B×H×T×D · D×R -> B×H×T×R -> B×H×T×S
        return spread(q @ self.key.t(), self._rows(q.size(2), k.size(2), start, q.device))

    def value(self, weights, start=0) -> Tensor:
        rows = self._rows(weights.size(2), weights.size(3), start, weights.device)
        # B×H×T×S -> B×H×T×R · R×D -> B×H×T×D
        return collect(weights, rows, len(self.value_weight)) @ self.value_weight

    def _rows(self, queries: int, keys: int, start: int, device) -> Tensor:
        i = torch.arange(start, start + queries, device=device)[:, None]
        j = torch.arange(keys, device=device)[None, :]
        return (i - j).clamp(self.lowest, self.clip) - self.lowest


@register_position_encoding("shaw")
class ShawPosition(PositionEncoding):
    """Added to keys and values in every layer, without a T×T×D tensor."""

    enters = "score, value"
    paper = "Shaw 2018"
    in_decoder = "vectors for keys on the left"

    def __init__(self, shape: Shape, *, relative_clip: RelativeClip = 16):
        super().__init__(shape)
        check_at_least("--relative-clip", relative_clip, 1)
        self.relative_clip = relative_clip

    def build_layer_terms(self) -> ShawTerms:
        return ShawTerms(self.shape, self.relative_clip)
