"""Products of batches of matrices against float64."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.arbitrary import SIZES, examples, same_or_refused, tensors
from tests.tolerances import assert_close
from tupe_fairseq.kernels.products import multiply

#: M, R, K, N: below, at and above the sizes of tiles, panels and parts of the kernel in C.
SHAPES = [
    (1, 1, 1, 1),
    (3, 7, 5, 9),
    (2, 6, 16, 64),
    (2, 13, 129, 65),
    (1, 193, 33, 48),
    (1, 300, 200, 150),
    (2, 193, 257, 180),
]


@pytest.mark.parametrize("transposed", ["none", "a", "b", "both"])
@pytest.mark.parametrize("shape", SHAPES)
def test_against_float64(way, shape, transposed):
    matrices, rows, inner, columns = shape
    generator = torch.Generator().manual_seed(1)

    def random(transposes, height, width):
        if transposes:
            return torch.randn(matrices, width, height, generator=generator).mT
        return torch.randn(matrices, height, width, generator=generator)

    a = random(transposed in ("a", "both"), rows, inner)
    b = random(transposed in ("b", "both"), inner, columns)
    expected = a.double() @ b.double()
    memory = torch.full((matrices, rows, columns), torch.nan)
    multiply(a, b, memory)
    assert_close(memory, expected)
    # Rows apart from each other, with cells between them that are not touched
    wide = random(False, rows, columns + 3)
    before = wide.clone()
    out = wide[..., 2:-1]
    multiply(a, b, out, accumulate=True)
    assert_close(out, before[..., 2:-1].double() + expected)
    multiply(a, b, out)
    assert_close(out, expected)
    assert torch.equal(wide[..., :2], before[..., :2])
    assert torch.equal(wide[..., -1], before[..., -1])


@examples
@given(st.data(), st.booleans())
def test_anything_is_computed_or_refused(way, data, accumulate):
    matrices, rows, depth, columns = (data.draw(SIZES) for _ in range(4))
    a = data.draw(tensors(matrices, rows, depth))
    b = data.draw(tensors(matrices, depth, columns))
    out = torch.zeros_like(data.draw(tensors(matrices, rows, columns)))

    def compute():
        multiply(a, b, out, accumulate)
        return out

    shapes = (matrices, rows, depth), (matrices, depth, columns), (matrices, rows, columns)
    same_or_refused(compute, lambda: a @ b, *zip((a, b, out), shapes, strict=True))
