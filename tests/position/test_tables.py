"""Fixed tables, and the moves between tables and cells, against loops."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.reference.sinusoidal import wave
from tests.tolerances import assert_close
from tupe_fairseq.position.indices import distances
from tupe_fairseq.position.tables import (
    ConstantTable,
    collect,
    relative_shift,
    sinusoids,
    spread,
    widened,
)

#: T queries at start, ..., start + T − 1 and S keys; S may be smaller than start + T.
sizes = {"queries": st.integers(1, 7), "keys": st.integers(1, 7), "start": st.integers(0, 7)}
rows = st.integers(1, 6)
quickly = settings(max_examples=60, deadline=None)

CASTS = {
    "none": lambda module: module,
    "half": lambda module: module.half(),
    "bfloat16": lambda module: module.bfloat16(),
    "double": lambda module: module.double(),
    "float": lambda module: module.half().float(),
    "to": lambda module: module.to("cpu", torch.float16),
    "copy": copy.deepcopy,
}


def normal(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def inner(a, b):
    return (a * b).sum()


@pytest.mark.parametrize("cast", CASTS)
def test_constant_table_stays_exact(cast):
    """Alone and inside a model; to the last bit."""
    values = normal(9, 4)
    model = nn.Sequential(nn.Linear(2, 2), ConstantTable(values))
    table = CASTS[cast](model)[1]
    assert torch.equal(table(torch.float64), values)
    assert torch.equal(table(torch.float64, 2, 5), values[2:5])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_constant_table_is_given_in_fp32_at_least(dtype):
    values = normal(9)
    given = ConstantTable(values)(dtype)
    assert given.dtype == widened(dtype) == torch.float32
    assert torch.equal(given, values.float())


def test_constant_table_is_not_saved_and_not_trained():
    table = ConstantTable(normal(9, 4))
    assert not table.state_dict()
    assert not list(table.parameters())
    assert [name for name, _ in table.named_buffers()] == ["bits"], "moves with the model"


@pytest.mark.parametrize("width", [1, 2, 7, 12])
def test_sinusoids_equal_the_loops(width):
    positions = torch.tensor([0, 1, 5, 511, -1, -3])
    expected = torch.stack([wave(int(k), width) for k in positions])
    found = sinusoids(positions, width)
    assert found.dtype == torch.float64
    assert_close(found, expected)


@quickly
@given(**sizes)
def test_relative_shift_moves_each_distance_to_its_cells(queries, keys, start):
    """Each query has values of its own: row i of the result reads row i of the argument."""
    offsets = distances(queries, keys, start)
    of_query = 100 * torch.arange(queries)[:, None] + offsets
    by_distance = torch.stack((of_query, -of_query))
    cells = relative_shift(by_distance, keys)
    assert cells.shape == (2, queries, keys)
    for i in range(queries):
        for j in range(keys):
            expected = 100 * i + j - (i + start)
            assert cells[:, i, j].tolist() == [expected, -expected]


@quickly
@given(**sizes)
def test_gradient_of_relative_shift_returns_to_the_distances(queries, keys, start):
    """Distances that no cell of a query has get none."""
    by_distance = normal(queries, queries + keys - 1).requires_grad_()
    weights = normal(queries, keys)
    inner(relative_shift(by_distance, keys), weights).backward()
    expected = torch.zeros_like(by_distance)
    for i in range(queries):
        for j in range(keys):
            expected[i, j - i + queries - 1] += weights[i, j]
    assert_close(by_distance.grad, expected)


@st.composite
def tables_and_cells(draw):
    """A number of rows, and which of them each of T×S cells reads."""
    queries, keys, table_rows = draw(sizes["queries"]), draw(sizes["keys"]), draw(rows)
    row = st.integers(0, table_rows - 1)
    cells = st.lists(st.lists(row, min_size=keys, max_size=keys), min_size=1, max_size=queries)
    return table_rows, torch.tensor(draw(cells))


@quickly
@given(tables_and_cells())
def test_spread_reads_the_row_of_each_cell(drawn):
    table_rows, index = drawn
    by_row = normal(2, 3, len(index), table_rows)
    cells = spread(by_row, index)
    assert cells.shape == (2, 3, *index.shape)
    for i, of_query in enumerate(index):
        for j, row in enumerate(of_query):
            assert torch.equal(cells[:, :, i, j], by_row[:, :, i, row])


@quickly
@given(tables_and_cells())
def test_collect_sums_over_the_cells_of_each_row(drawn):
    table_rows, index = drawn
    weights = normal(2, 3, *index.shape)
    expected = torch.zeros(2, 3, len(index), table_rows, dtype=torch.float64)
    for i, of_query in enumerate(index):
        for j, row in enumerate(of_query):
            expected[:, :, i, row] += weights[:, :, i, j]
    assert_close(collect(weights, index, table_rows), expected)


@quickly
@given(tables_and_cells())
def test_spread_and_collect_are_transposes(drawn):
    """⟨spread(a), b⟩ = ⟨a, collect(b)⟩, and each is the gradient of the other."""
    table_rows, index = drawn
    by_row = normal(2, 3, len(index), table_rows).requires_grad_()
    weights = normal(2, 3, *index.shape).requires_grad_()
    forth, back = spread(by_row, index), collect(weights, index, table_rows)
    assert_close(inner(forth, weights), inner(by_row, back))
    assert_close(torch.autograd.grad(inner(forth, weights.detach()), by_row)[0], back)
    assert_close(torch.autograd.grad(inner(by_row.detach(), back), weights)[0], forth)


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_widened(dtype, wide):
    assert widened(dtype) == wide
