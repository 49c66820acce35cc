"""The relative bank (Thinking Machines 2026, Inkling): each token mixes profiles over distances.

score_ij = q_i·k_j / √D + r_i · P_{i−j} for 0 ≤ i − j < E, and without the second term elsewhere.
r_i = W_R x_i has R values for each head, and P, the bank, R×E, is shared by the heads; x is the
layer's input. Each layer has W_R and P. E is --bank-extent, R is --bank-width.

Inkling is causal. It also normalises queries and keys by head and scales their products by 1/D,
which is not part of the encoding here. In an encoder, the bank has columns for −E < i − j < E;
this is ours.
"""

from typing import Annotated, Any

import torch.nn.functional as F
from torch import Tensor, nn

from ..kernels.linear import project
from .base import PositionEncoding, Shape, check_at_least, register_position_encoding
from .initial import random_vectors
from .layer_terms import LayerTerms
from .relative import ByDistance, RelativeVectors


class Bank(LayerTerms):
    """W_R and P of one layer; the columns of P are for ascending i − j."""

    def __init__(self, shape: Shape, width: int, extent: int):
        super().__init__()
        self.heads, self.extent = shape.num_heads, extent
        self.r_proj = nn.Linear(shape.embed_dim, shape.num_heads * width, bias=False)
        nn.init.normal_(self.r_proj.weight, std=0.02)
        self.bank = random_vectors(width, 2 * extent - 1 if shape.bidirectional else extent)

    def relative(self, encoding: Any, length: int, attention: Any = None) -> RelativeVectors:
        # All distances beyond either end read a column of zeros there; j − i ascends.
        columns = F.pad(self.bank, (1, 1)).flip(1)
        return RelativeVectors(ByDistance(columns.t()[None], -self.extent))

    def relative_queries(self, x: Tensor) -> Tensor:
        # B×T×HR -> B×H×T×R
        return project(x, self.r_proj).unflatten(-1, (self.heads, -1)).transpose(1, 2)


@register_position_encoding("relative_bank")
class RelativeBank(PositionEncoding):
    """A bank of each layer; nothing is shared by layers."""

    def __init__(
        self,
        shape: Shape,
        *,
        bank_width: Annotated[int, "number of profiles over distances that a token mixes"] = 16,
        bank_extent: Annotated[int, "distance from which nothing is added"] = 1024,
    ):
        super().__init__(shape)
        check_at_least("--bank-width", bank_width, 1)
        check_at_least("--bank-extent", bank_extent, 1)
        self.bank_width, self.bank_extent = bank_width, bank_extent

    def build_layer_terms(self) -> Bank:
        return Bank(self.shape, self.bank_width, self.bank_extent)
