"""ALiBi with slopes that depend on the query: score_ij − (q_i·u) |i − j|."""

import torch
from torch import nn

from tupe_fairseq import PositionEncoding, register_position_encoding
from tupe_fairseq.position import LayerTerms
from tupe_fairseq.position.relative import ByDistance, RelativeVectors


class TokenSlopes(LayerTerms):
    """The vectors u of one layer."""

    def __init__(self, shape):
        super().__init__()
        self.u = nn.Parameter(torch.empty(shape.num_heads, shape.head_dim))
        nn.init.normal_(self.u, std=0.02)

    def relative(self, encoding, length, attention=None):
        # W×1 and H×1×D -> H×W×D, a vector for each distance
        distance = torch.arange(1 - length, length).to(self.u).abs()
        return RelativeVectors(ByDistance(-distance[:, None] * self.u[:, None], 1 - length))


@register_position_encoding("token_slopes")
class TokenSlopePosition(PositionEncoding):
    """A learned vector for each head of each layer."""

    def build_layer_terms(self):
        return TokenSlopes(self.shape)
