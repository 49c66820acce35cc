"""Values by distance added to cells of attention, and summed back from them.

Shapes: M matrices of I queries and J keys. Cell (i, j) belongs to column c = j − i + offset of a
table of W columns, or to the first or last where c is outside. The table has rows of queries,
M×I×W, or of keys, M×J×W: the rows of a product with vectors by distance.
"""

import torch
from torch import Tensor

from ..base.errors import DataError
from . import native


def add_by_distance_(cells: Tensor, table: Tensor, offset: int, by_key: bool = False) -> None:
    """Add to each cell the value of its row and distance.

    Args:
        cells: M×I×J with a contiguous last dimension.
        table: M×I×W, or M×J×W by key, contiguous.
        offset: see above.
        by_key: whether the rows of the table are keys.
    """
    kernels = native.serving(cells, table)
    if kernels is not None:
        kernels.add_by_distance(*_arguments(cells, table, offset, by_key))
        return
    if by_key:
        cells = cells.mT
    cells += table.gather(-1, _columns(cells, table, offset, by_key))


def sum_by_distance(cells: Tensor, table: Tensor, offset: int, by_key: bool = False) -> None:
    """The transpose of `add_by_distance_`: overwrite the table by the sums of its cells."""
    kernels = native.serving(cells, table)
    if kernels is not None:
        kernels.sum_by_distance(*_arguments(cells, table, offset, by_key))
        return
    if by_key:
        cells = cells.mT
    table.zero_().scatter_add_(-1, _columns(cells, table, offset, by_key), cells)


def _arguments(cells: Tensor, table: Tensor, offset: int, by_key: bool) -> tuple[int, ...]:
    matrices, i, j = cells.shape
    matrix, row, step = cells.stride()
    columns = table.size(-1)
    if step != 1:
        raise DataError(f"cells need a contiguous last dimension; strides: {cells.stride()}.")
    return (
        native.pointer(cells, matrices, i, j, strided=True),
        native.pointer(table, matrices, j if by_key else i, columns),
        matrices,
        i,
        j,
        matrix,
        row,
        columns,
        offset,
        by_key,
    )


def _columns(rows: Tensor, table: Tensor, offset: int, by_key: bool) -> Tensor:
    """The column of each cell, with the table's rows in the rows."""
    first, second = (torch.arange(n, device=rows.device) for n in rows.shape[1:])
    distance = first[:, None] - second if by_key else second - first[:, None]
    return (distance + offset).clamp(0, table.size(-1) - 1).expand(rows.shape)
