"""Sinusoidal absolute positions (Vaswani et al. 2017, section 3.5): x + p_k at the input.

p_{k,2i} = sin(k/10000^{2i/C}), p_{k,2i+1} = cos(k/10000^{2i/C}). Token embeddings are multiplied
by √C before (section 3.4), because |p_k| = √(C/2) is far larger than embeddings of BERT's
initialisation. This follows the paper; fairseq's own module has frequencies 10000^{−i/(C/2−1)},
all sines before all cosines, and counts from 2.
"""

from typing import Annotated

import torch
from torch import Tensor

from .base import PositionEncoding, Shape, register_position_encoding
from .tables import ConstantTable, sinusoids

#: fairseq's position of the first token: one after that of padding.
FAIRSEQ_FIRST = 2


@register_position_encoding("sinusoidal")
class SinusoidalPosition(PositionEncoding):
    """Has no parameters; any length can be computed."""

    scales_tokens = True

    def __init__(
        self,
        shape: Shape,
        *,
        fairseq_sinusoids: Annotated[bool, "use fairseq's table of sinusoids"] = False,
    ):
        super().__init__(shape)
        table = as_fairseq if fairseq_sinusoids else sinusoids
        self.table = ConstantTable(table(torch.arange(shape.max_positions), shape.embed_dim))

    def embed(
        self, x: Tensor, tokens: object = None, padding_mask: object = None, start: int = 0
    ) -> Tensor:
        rows = slice(start, start + x.size(1))
        return x + self.table(x.dtype, rows).to(x.dtype)


def as_fairseq(positions: Tensor, width: int) -> Tensor:
    """Fairseq's table: sin((k+2)·10000^{−i/(C/2−1)}) for i < C/2, then the cosines; N×C, fp64."""
    half = width // 2
    frequencies = 10000 ** (-torch.arange(half, dtype=torch.float64) / max(half - 1, 1))
    # N×1 · 1×(C/2)
    angles = (positions.double()[:, None] + FAIRSEQ_FIRST) * frequencies
    return torch.nn.functional.pad(torch.cat((angles.sin(), angles.cos()), 1), (0, width % 2))
