"""SHAPE (Kiyono et al. 2021): sinusoids at randomly shifted positions, x + p_{t + k}.

In training, each sequence draws k ~ U{0, ..., K − 1}; in evaluation, k = K, as in the released
code. Frequencies and the factor √C of the token embeddings are those of `sinusoidal`. Departure:
the released code draws from fewer shifts where its table of 5,000 positions ends; here the table
reaches as far as needed.
"""

from typing import Annotated

import torch
from torch import Tensor

from .base import PositionEncoding, Shape, check_at_least, register_position_encoding
from .tables import ConstantTable, sinusoids


@register_position_encoding("shape")
class ShapePosition(PositionEncoding):
    """Has no parameters; draws from torch's generator, which fairseq seeds at each update."""

    scales_tokens = True

    def __init__(
        self,
        shape: Shape,
        *,
        shape_shifts: Annotated[
            int, "K: shifts of 0 to K − 1 in training, of K in evaluation"
        ] = 500,
    ):
        super().__init__(shape)
        check_at_least("--shape-shifts", shape_shifts, 0)
        self.shifts = shape_shifts
        positions = torch.arange(shape.max_positions + shape_shifts)
        self.table = ConstantTable(sinusoids(positions, shape.embed_dim))

    def embed(
        self, x: Tensor, tokens: object = None, padding_mask: object = None, start: int = 0
    ) -> Tensor:
        stop = start + x.size(1)
        if not self.training or not self.shifts:
            shifted = self.table(x.dtype, slice(start + self.shifts, stop + self.shifts))
            return x + shifted.to(x.dtype)
        shift = torch.randint(self.shifts, (len(x), 1), device=x.device)
        table = self.table(x.dtype, slice(start, stop + self.shifts)).to(x.dtype)
        # B×1 + T -> B×T -> B×T×C
        return x + table[shift + torch.arange(x.size(1), device=x.device)]
