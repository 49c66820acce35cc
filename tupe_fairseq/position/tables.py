"""Constant tables, sinusoids, and tables divided among heads."""

import torch
from torch import Tensor, nn

from .dtypes import widened


class ConstantTable(nn.Module):
    """A constant table that is not saved and stays exact in a half-precision model.

    --fp16 and --bf16 cast every floating-point buffer, and the rounding error of an angle grows to
    several radians at far positions. The table, fp64 of N×anything, is therefore stored as
    integers, which are not cast.
    """

    bits: Tensor

    def __init__(self, table: Tensor):
        super().__init__()
        self.register_buffer("bits", table.double().view(torch.int64), persistent=False)

    def forward(self, dtype: torch.dtype, rows: slice | Tensor = slice(None)) -> Tensor:
        """The given rows, in fp32 or `dtype`, whichever is wider."""
        table = self.bits[rows]
        if not table.is_floating_point():
            table = table.view(torch.float64)
        return table.to(widened(dtype))

    def to_floats(self) -> None:
        """Store fp64, for programs that cannot reinterpret bits: those of ONNX."""
        self.bits = self.bits.view(torch.float64)


def sinusoids(positions: Tensor, width: int) -> Tensor:
    """p_{k,2i} = sin(k / 10000^{2i/width}), p_{k,2i+1} = cos(the same) (Vaswani et al. 2017, 3.5).

    Args:
        positions: N positions k, which may be negative.
        width: of the result; where odd, the last cosine is left out.

    Returns:
        N×width, fp64.
    """
    pairs = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device)
    # N×1 · 1×(width/2)
    angles = positions.double()[:, None] * 10000 ** (-pairs / width)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)[:, :width]


def per_head(rows: Tensor, heads: int) -> Tensor:
    """Vectors of the model width divided among the heads: R×C -> H×R×D."""
    return rows.unflatten(-1, (heads, -1)).transpose(0, 1)
