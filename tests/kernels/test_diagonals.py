"""Values by distance added to cells, and summed from them, against loops."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.arbitrary import SIZES, examples, same_or_refused, tensors
from tests.tolerances import assert_close
from tupe_fairseq.kernels.diagonals import add_by_distance_, sum_by_distance


def added(cells, table, offset, by_key):
    cells = cells.clone()
    for i in range(cells.size(1)):
        for j in range(cells.size(2)):
            column = min(max(j - i + offset, 0), table.size(-1) - 1)
            cells[:, i, j] += table[:, j if by_key else i, column]
    return cells


def summed(cells, table, offset, by_key):
    table = torch.zeros_like(table, dtype=torch.float64)
    for i in range(cells.size(1)):
        for j in range(cells.size(2)):
            column = min(max(j - i + offset, 0), table.size(-1) - 1)
            table[:, j if by_key else i, column] += cells[:, i, j]
    return table


@examples
@given(st.data(), st.booleans(), st.integers(-20, 40))
def test_against_loops(way, data, by_key, offset):
    matrices, i, j, columns = (data.draw(SIZES) for _ in range(4))
    # The cells are a window of larger memory, as a tile of a block is.
    shapes = (matrices, i + 1, j + 3), (matrices, j if by_key else i, columns)
    memory, table = (data.draw(tensors(*shape)) for shape in shapes)
    cells = memory[:, 1:, 2:-1]
    pairs = [*zip((memory, table), shapes, strict=True)]
    seen = memory.clone()[:, 1:, 2:-1]
    totals = torch.full_like(table, torch.nan)

    def add():
        add_by_distance_(seen, table, offset, by_key)
        return seen

    def add_up():
        sum_by_distance(cells, totals, offset, by_key)
        return totals

    same_or_refused(add, lambda: added(cells.double(), table, offset, by_key), *pairs)
    same_or_refused(add_up, lambda: summed(cells, table, offset, by_key), *pairs)


#: Blocks of 16 by 16 cells have 31 distances: tables that hold them all, and none too many.
@pytest.mark.parametrize("columns", range(29, 35))
@pytest.mark.parametrize("offset", range(13, 19))
def test_whole_blocks_at_the_ends_of_the_table(way, columns, offset):
    """Of 16 by 16 cells, which the kernel computes in registers."""
    rows = torch.randn(2, 16, columns)
    cells = torch.randn(2, 16, 16)
    seen = cells.clone()
    totals = torch.full_like(rows, torch.nan)
    add_by_distance_(seen, rows, offset, True)
    assert torch.equal(seen, added(cells, rows, offset, True))
    sum_by_distance(cells, totals, offset, True)
    assert_close(totals, summed(cells, rows, offset, True))
