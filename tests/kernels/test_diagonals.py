"""Values by distance added to cells, and summed from them, against loops."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tolerances import assert_close
from tupe_fairseq.kernels.diagonals import add_by_distance_, sum_by_distance

sizes = {
    "matrices": st.integers(1, 3),
    "queries": st.integers(1, 20),
    "keys": st.integers(1, 40),
    "columns": st.integers(1, 70),
    "offset": st.integers(-45, 60),
    "by_key": st.booleans(),
    "dtype": st.sampled_from([torch.float32, torch.float64]),
}
quickly = settings(max_examples=60)


def normal(*shape, dtype):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=dtype)


def cells_and_columns(queries, keys, columns, offset):
    for i in range(queries):
        for j in range(keys):
            yield i, j, min(max(j - i + offset, 0), columns - 1)


#: Blocks of 16 by 16 cells have 31 distances: tables that hold them all, and none too many.
at_the_edge = pytest.mark.parametrize("columns", range(29, 35))
offsets = pytest.mark.parametrize("offset", range(13, 19))


@quickly
@given(**sizes)
def test_each_cell_gets_the_value_of_its_row_and_distance(
    way, matrices, queries, keys, columns, offset, by_key, dtype
):
    table = normal(matrices, keys if by_key else queries, columns, dtype=dtype)
    # A window of larger memory, as a tile of a block is.
    memory = normal(matrices, queries + 2, keys + 3, dtype=dtype)
    expected = memory.clone()
    for i, j, column in cells_and_columns(queries, keys, columns, offset):
        expected[:, 1 + i, 2 + j] += table[:, j if by_key else i, column]
    add_by_distance_(memory[:, 1 : queries + 1, 2 : keys + 2], table, offset, by_key)
    assert_close(memory, expected)


@quickly
@given(**sizes)
def test_each_value_gets_the_sum_of_its_cells(
    way, matrices, queries, keys, columns, offset, by_key, dtype
):
    cells = normal(matrices, queries + 2, keys + 3, dtype=dtype)[:, 1:-1, 2:-1]
    rows = keys if by_key else queries
    expected = torch.zeros(matrices, rows, columns, dtype=dtype)
    for i, j, column in cells_and_columns(queries, keys, columns, offset):
        expected[:, j if by_key else i, column] += cells[:, i, j]
    found = torch.full_like(expected, float("nan"))
    sum_by_distance(cells, found, offset, by_key)
    assert_close(found, expected)


@at_the_edge
@offsets
def test_whole_blocks_at_the_ends_of_the_table(way, columns, offset):
    """Of 16 by 16 cells, which the kernel computes in registers."""
    rows = normal(2, 16, columns, dtype=torch.float32)
    cells, expected = torch.zeros(2, 16, 16), torch.zeros(2, 16, 16)
    summed = torch.zeros_like(rows)
    for i, j, column in cells_and_columns(16, 16, columns, offset):
        expected[:, i, j] = rows[:, j, column]
        summed[:, j, column] += rows[:, j, column]
    add_by_distance_(cells, rows, offset, True)
    assert torch.equal(cells, expected)
    found = torch.full_like(rows, float("nan"))
    sum_by_distance(cells, found, offset, True)
    assert_close(found, summed)
