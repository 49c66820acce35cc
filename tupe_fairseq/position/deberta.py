"""Disentangled attention (He et al. 2020, DeBERTa): content and relative position.

score_ij = [ q_i k_j + q_i k^R_{δ(i,j)} + k_j q^R_{δ(j,i)} ] / √(3D), equation 4, where
k^R = P W^K_R and q^R = P W^Q_R; P is shared by all layers and δ(i,j) = clip(i − j + k, 0, 2k − 1),
equation 3. The position-to-position term is left out. The released code reads q^R at δ(i,j)
instead of δ(j,i).
"""

from typing import Annotated, Any

import torch
from torch import Tensor, nn

from ..kernels.linear import project
from .base import PositionEncoding, Shape, check_at_least, register_position_encoding
from .layer_terms import LayerTerms
from .relative import ByDistance, RelativeVectors
from .shaw import RelativeClip
from .tables import per_head, random_vectors


class DebertaTerms(LayerTerms):
    """W^K_R and W^Q_R of one layer."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        self.pos_k_proj = nn.Linear(shape.embed_dim, shape.embed_dim)
        self.pos_q_proj = nn.Linear(shape.embed_dim, shape.embed_dim)

    def relative(self, encoding: Any, length: int) -> RelativeVectors:
        """k^R and scaled q^R at the rows of P that this length reaches."""
        scale = (encoding.score_terms * self.shape.head_dim) ** -0.5
        table = encoding.rows(length)
        k = len(table) // 2
        # δ(i,j) = i − j + k ascends where j − i descends, δ(j,i) = j − i + k ascends with it.
        heads = self.shape.num_heads
        pos_k = per_head(project(table, self.pos_k_proj), heads).flip(1)
        pos_q = per_head(project(table, self.pos_q_proj), heads) * scale
        return RelativeVectors(ByDistance(pos_k, 1 - k), ByDistance(pos_q, -k))


@register_position_encoding("deberta")
class DebertaPosition(PositionEncoding):
    """The relative table P, and with --deberta-emd absolute positions before the LM head.

    Departure: the paper's enhanced mask decoder runs the last layer again with the absolute
    positions in its queries; here they are added to the features that the LM head reads.
    """

    score_terms = 3

    def __init__(
        self,
        shape: Shape,
        *,
        relative_clip: RelativeClip = 512,
        deberta_emd: Annotated[bool, "add absolute positions before the LM head"] = False,
    ):
        super().__init__(shape)
        check_at_least("--relative-clip", relative_clip, 1)
        self.relative_clip = relative_clip
        self.weight = random_vectors(2 * relative_clip, shape.embed_dim)
        self.absolute = None
        if deberta_emd:
            self.absolute = random_vectors(shape.max_positions, shape.embed_dim)

    def rows(self, length: int) -> Tensor:
        """The rows of P that this length reaches, R×C: the middle of the table."""
        exporting = torch.compiler.is_exporting()
        k = self.relative_clip if exporting else min(self.relative_clip, length)
        return self.weight[self.relative_clip - k : self.relative_clip + k]

    def build_layer_terms(self) -> DebertaTerms:
        return DebertaTerms(self.shape)

    def position_tables(self) -> dict[str, int]:
        return {} if self.absolute is None else {"absolute": 0}

    def before_lm_head(self, x: Tensor) -> Tensor:
        return x if self.absolute is None else x + self.absolute[: x.size(1)]
