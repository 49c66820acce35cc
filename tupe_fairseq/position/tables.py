"""Constant tables, and conversions between values by distance and values by cell."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn


class ConstantTable(nn.Module):
    """A constant table that is not saved and stays exact in a half-precision model.

    --fp16 and --bf16 cast every floating-point buffer, and the rounding error of an angle grows to
    several radians at far positions. The table is therefore stored as integers, which are not
    cast.

    Args:
        table: fp64, N×anything.
    """

    bits: Tensor

    def __init__(self, table: Tensor):
        super().__init__()
        self.register_buffer("bits", table.double().view(torch.int64), persistent=False)

    def forward(self, dtype: torch.dtype, start: int = 0, stop: int | None = None) -> Tensor:
        """Rows start, ..., stop − 1, in fp32 or the model's dtype, whichever is wider."""
        return self.select(dtype, slice(start, stop))

    def select(self, dtype: torch.dtype, rows: slice | Tensor) -> Tensor:
        """The given rows."""
        found = self.bits[rows]
        if not found.is_floating_point():
            found = found.view(torch.float64)
        return found.to(widened(dtype))

    def to_floats(self) -> None:
        """Store fp64, for programs that cannot reinterpret bits: those of ONNX."""
        self.bits = self.bits.view(torch.float64)


def widened(dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums over scores and tables: fp32 for half precision, otherwise unchanged."""
    return torch.promote_types(dtype, torch.float32)


def without_autocast(device: str) -> AbstractContextManager:
    """A context in which this type of device computes in the dtypes of its inputs."""
    available = torch.amp.is_autocast_available(device)
    return torch.autocast(device, enabled=False) if available else nullcontext()


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


def relative_shift(by_distance: Tensor, keys: int) -> Tensor:
    """Values by query and distance to values by query and key: ...×T×(T+S−1) -> ...×T×S.

    Cell (i, j) reads column j − i + T − 1, distances ascending as `indices.distances` gives them.
    In the flattened tensor that is i·(T+S−2) + j + T − 1, so a view with rows one column shorter
    does it without a gather.
    """
    queries, columns = by_distance.shape[-2:]
    if queries == 1:
        return by_distance
    flat = by_distance.flatten(-2)[..., queries - 1 : queries * columns - 1]
    return flat.unflatten(-1, (queries, columns - 1))[..., :keys]


def spread(by_row: Tensor, index: Tensor) -> Tensor:
    """Values by query and table row to values by query and key.

    Args:
        by_row: B×H×T×R.
        index: the row that each cell reads, T×S.

    Returns:
        B×H×T×S.
    """
    return by_row.gather(-1, index.expand(*by_row.shape[:-2], *index.shape))


def collect(weights: Tensor, index: Tensor, rows: int) -> Tensor:
    """Sum the weights of the keys that share a table row; the transpose of `spread`.

    Args:
        weights: B×H×T×S.
        index: the row of each cell, T×S.
        rows: R.

    Returns:
        B×H×T×R.
    """
    sums = weights.new_zeros(*weights.shape[:-1], rows)
    return sums.scatter_add(-1, index.expand_as(weights), weights)
