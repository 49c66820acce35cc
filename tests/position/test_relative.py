"""Vectors by distance against loops over queries and keys."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tolerances import assert_close
from tupe_fairseq.position.relative import ByDistance

#: T queries at start, ..., start + T − 1 and S keys; S may be smaller than start + T. The table
#: begins at any distance and may end before the farthest.
cases = {
    "queries": st.integers(1, 7),
    "keys": st.integers(1, 7),
    "start": st.integers(0, 7),
    "first": st.integers(-9, 3),
    "rows": st.integers(1, 15),
    "table_heads": st.sampled_from([1, 3]),
}


def normal(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def spread(vectors, first, queries, keys, start):
    """The vector of each query and key, H×T×S×D."""
    last = vectors.size(1) - 1
    rows = [
        [min(max(j - i - first, 0), last) for j in range(keys)]
        for i in range(start, start + queries)
    ]
    return vectors[:, rows].expand(3, -1, -1, -1)


@pytest.mark.parametrize("product", ["products_of_queries", "products_of_keys", "weighted_sum"])
@settings(max_examples=60, deadline=None)
@given(**cases)
def test_products_and_gradients_equal_the_loops(
    product, queries, keys, start, first, rows, table_heads
):
    vectors = normal(table_heads, rows, 4)
    table, cells = ByDistance(vectors, first), spread(vectors, first, queries, keys, start)
    if product == "products_of_queries":
        x = normal(2, 3, queries, 4, seed=1)
        found = table.products_of_queries(x, keys, start)
        expected = torch.einsum("bhtd,htsd->bhts", x, cells)
    elif product == "products_of_keys":
        x = normal(2, 3, keys, 4, seed=1)
        found = table.products_of_keys(x, queries, start)
        expected = torch.einsum("bhsd,htsd->bhts", x, cells)
    else:
        x = normal(2, 3, queries, keys, seed=1)
        found = table.weighted_sum(x, start)
        expected = torch.einsum("bhts,htsd->bhtd", x, cells)
    assert_close(found, expected)
    weights = normal(*found.shape, seed=2).detach()
    gradients = [torch.autograd.grad((y * weights).sum(), (x, vectors)) for y in (found, expected)]
    for of_found, of_expected in zip(*gradients, strict=True):
        assert_close(of_found, of_expected)
