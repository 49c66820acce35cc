"""The kernels between the two products: compiled and in torch, against autograd."""

import contextlib
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.covering import covering
from tests.kernels.arbitrary import REFUSED, SIZES, examples, same_or_refused, tensors
from tests.tolerances import FORWARD, assert_close
from tupe_fairseq.kernels.random_bits import keep_mask
from tupe_fairseq.kernels.softmax import ScoreTerms, softmax_dropout_, softmax_dropout_backward_

#: Matrices, rows, keys: odd ones, one of each, and more keys than a vector register holds.
SHAPES = ((1, 1, 1), (1, 3, 2), (3, 1, 5), (2, 7, 97), (4, 5, 130))
KEY = 12345
FIRST = 17


def half(matrices):
    """How many, where two matrices share one."""
    return matrices // 2 if matrices % 2 == 0 else matrices


def terms_of(shape, of_bias, padded, p, dtype):
    matrices, rows, keys = shape
    bias = padding = None
    if of_bias:
        # A window of a larger table, as blocks see it.
        table = 3 * torch.randn(of_bias(matrices), rows + 2, keys + 3, dtype=dtype)
        bias = table[:, 1 : rows + 1, :keys]
    if padded:
        padding = torch.zeros(padded(matrices), 1, keys, dtype=dtype)
        padding[0, :, keys // 2 + 1 :] = -1e4
    return ScoreTerms(bias, padding, p, KEY, FIRST)


def expected_of(scores, terms):
    matrices = len(scores)
    rows = []
    for m in range(matrices):
        row = scores[m]
        if terms.bias is not None:
            row = row + terms.bias[m // (matrices // len(terms.bias))]
        if terms.padding is not None:
            row = row + terms.padding[m % len(terms.padding)]
        rows.append(row)
    weights = torch.stack(rows).softmax(-1)
    if not terms.p:
        return weights
    matrices, rows, keys = weights.shape
    kept = keep_mask(matrices * rows, keys, terms.p, KEY, FIRST).view(weights.shape)
    return weights * kept / (1 - terms.p)


#: How many matrices a term has, where there are so many of scores.
COUNTS = {"none": None, "shared": lambda m: 1, "each": lambda m: m, "half": half}


@pytest.mark.parametrize(
    ("shape_and_bias", "padded", "p", "dtype", "way"),
    covering(
        itertools.product(SHAPES, COUNTS),
        ("none", "each", "half"),
        (0.0, 0.25),
        (torch.float64, torch.float32),
        ("native", "torch"),
    ),
    indirect=["way"],
    ids=str,
)
def test_weights_and_gradients(shape_and_bias, padded, p, dtype, way):
    shape = shape_and_bias[0]
    of_bias = COUNTS[shape_and_bias[1]]
    padded = COUNTS[padded]
    torch.manual_seed(0)
    terms = terms_of(shape, of_bias, padded, p, dtype)
    scores = (3 * torch.randn(shape, dtype=dtype)).requires_grad_()
    if terms.bias is not None:
        terms.bias.requires_grad_()
    expected = expected_of(scores, terms)
    gradient = torch.randn(shape, dtype=dtype)
    expected.backward(gradient)

    found = scores.detach().clone()
    again = scores.detach().clone()
    of_scores = gradient.clone()
    of_bias = None
    if terms.bias is not None:
        of_bias = torch.empty_strided(terms.bias.shape, terms.bias.stride(), dtype=dtype).fill_(1)
    with torch.no_grad():
        softmax_dropout_(found, terms)
        softmax_dropout_backward_(again, of_scores, of_bias, terms)
    assert_close(found, expected)
    assert_close(again, expected)
    assert_close(of_scores, scores.grad)
    if of_bias is not None:
        assert_close(of_bias - 1, terms.bias.grad)


@examples
@given(st.data())
def test_anything_is_computed_or_refused(data):
    groups, each, rows, columns = (data.draw(SIZES) for _ in range(4))
    shape = (groups * each, rows, columns)
    of_bias = (groups, rows, columns)
    scores = data.draw(tensors(*shape)).contiguous()
    bias = data.draw(st.one_of(st.none(), tensors(*of_bias)))
    padding = data.draw(st.one_of(st.none(), tensors(1, 1, columns)))
    terms = ScoreTerms(bias, padding)
    weights = scores.clone()

    def compute():
        softmax_dropout_(weights, terms)
        return weights

    def define():
        total = scores if bias is None else scores + bias.repeat_interleave(each, 0)
        return (total if padding is None else total + padding).softmax(-1)

    pairs = (scores, shape), (bias, of_bias), (padding, (1, 1, columns))
    same_or_refused(compute, define, *pairs)
    gradient = data.draw(tensors(*shape)).contiguous()
    of_bias = None if bias is None else data.draw(tensors(*of_bias))
    with contextlib.suppress(*REFUSED):
        softmax_dropout_backward_(scores.clone(), gradient, of_bias, terms)


def test_extreme_scores(way):
    """No overflow, and weights of far smaller scores are zero, not garbage."""
    scores = torch.tensor([[[1e4, 0.0, -1e4], [-3e4, -3e4, -2.99e4], [88.0, 0.0, -88.0]]])
    expected = scores.double().softmax(-1)
    softmax_dropout_(scores, ScoreTerms())
    assert_close(scores.double(), expected, torch.float32)


def test_nan_is_not_hidden(way):
    """A diverged model must be seen as such: fairseq looks for NaN in the loss."""
    scores = torch.tensor([[[0.0, float("nan"), 1.0]]])
    softmax_dropout_(scores, ScoreTerms())
    assert scores.isnan().any()


def test_exponential_is_exact_over_its_range(way):
    """Every float between -87 and 0 on a fine grid, relative to the sum."""
    x = -torch.linspace(0, 87, 200_001)
    scores = torch.stack((torch.zeros_like(x), x), -1)[None]
    expected = scores.double().softmax(-1)
    softmax_dropout_(scores, ScoreTerms())
    error = ((scores - expected).abs() / expected).max()
    assert error < FORWARD[torch.float32] / 10
