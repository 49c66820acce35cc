"""Dropout: its generator against plain integers, its distribution, and what seeds promise."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.arbitrary import SIZES, examples, same_or_refused, tensors
from tests.tolerances import assert_close
from tupe_fairseq.kernels import native
from tupe_fairseq.kernels.dropout import Dropout, dropout
from tupe_fairseq.kernels.random_bits import keep_mask

SHAPE = (64, 1003)


def split_mix(key: int, counter: int) -> int:
    """SplitMix64 (Steele et al. 2014), with Python's integers."""
    modulus = 1 << 64
    z = (key + counter * 0x9E3779B97F4A7C15) % modulus
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % modulus
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % modulus
    return z ^ (z >> 31)


@settings(max_examples=30)
@given(
    rows=st.integers(1, 4),
    columns=st.integers(1, 9),
    p=st.floats(0, 1),
    key=st.integers(0, 2**63 - 1),
    first=st.integers(0, 2**40),
)
def test_masks_are_pieces_of_split_mix(rows, columns, p, key, first):
    mask = keep_mask(rows, columns, p, key, first)
    words = -(-columns // 4)
    for i in range(rows):
        for j in range(columns):
            word = split_mix(key, first + i * words + j // 4)
            piece = word >> (16 * (j % 4)) & 0xFFFF
            signed = piece - 65536 if piece >= 32768 else piece
            assert mask[i, j].item() == (signed >= min(round(p * 65536), 65535) - 32768)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_dropout_and_its_gradients(way, dtype):
    """Kept entries are scaled by 1/(1−p), and the gradient passes by the same mask."""
    module = Dropout(0.25)
    p = 0.25
    x = (torch.rand(SHAPE, dtype=dtype) + 1).requires_grad_()
    out = module(x)
    assert out.dtype == dtype
    kept = out != 0
    assert 0.7 < kept.float().mean() < 0.8
    assert_close(out, torch.where(kept, x / (1 - p), 0))
    gradient = torch.randn(SHAPE).to(dtype)
    out.backward(gradient)
    assert_close(x.grad, torch.where(kept, gradient / (1 - p), 0))


def test_both_ways_draw_the_same_masks(request):
    if native.kernels() is None:
        pytest.skip("no C compiler")
    x = torch.randn(SHAPE)
    module = Dropout(0.1)
    torch.manual_seed(5)
    compiled = module(x)
    request.getfixturevalue("without_kernels")
    torch.manual_seed(5)
    assert torch.equal(module(x), compiled)


def test_same_seed_same_mask(way):
    """So recomputed activations meet the masks again."""
    x = torch.ones(SHAPE)
    module = Dropout(0.5)
    outs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outs.append(module(x))
    assert torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[0], outs[2])
    assert not torch.equal(module(x), module(x))


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_nothing_and_everything_dropped(p):
    x = torch.randn(3, 5)
    assert torch.equal(Dropout(p)(x), x * (1 - p))


@pytest.mark.parametrize("p", [1e-9, 1 - 1e-9])
def test_almost_nothing_and_almost_everything_dropped(way, p):
    """Probabilities that round to 0 and 1 leave finite numbers."""
    out = Dropout(p)(torch.ones(SHAPE))
    assert out.isfinite().all()
    assert (out == 0).float().mean() == pytest.approx(round(p), abs=1e-3)


def test_evaluation_drops_nothing():
    x = torch.randn(3, 5)
    assert Dropout(0.5).eval()(x) is x


def test_strided_and_empty_inputs(way):
    """What transposed layers give, and a batch without words."""
    torch.manual_seed(0)
    x = torch.randn(40, 30).t()
    out = Dropout(0.5)(x)
    assert_close(out, torch.where(out != 0, 2 * x, 0))
    assert Dropout(0.5)(torch.empty(0, 4)).shape == (0, 4)


def test_second_derivatives(way):
    """With the mask as a constant factor."""
    x = torch.linspace(-1, 1, 64).requires_grad_()

    def second(y):
        (gradient,) = torch.autograd.grad(y.pow(2).sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.sum(), x)[0]

    dropped = Dropout(0.3)(x**2)
    mask = (dropped / x**2).detach()
    assert_close(second(dropped), second(mask * x**2))


@examples
@given(st.data())
def test_tensors_of_any_kind(data):
    rows = data.draw(SIZES)
    width = data.draw(SIZES)
    x = data.draw(tensors(rows, width))
    # So small that nothing is dropped.
    same_or_refused(lambda: dropout(x, 1e-9), lambda: x, (x, (rows, width)))
