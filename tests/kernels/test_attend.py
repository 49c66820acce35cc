"""Attention by the kernel in C against attention written out in float64."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.arbitrary import SIZES, examples, same_or_refused, tensors
from tests.tolerances import assert_close
from tupe_fairseq.kernels.attend import attend
from tupe_fairseq.kernels.softmax import ScoreTerms
from tupe_fairseq.position.bias import HIDDEN

#: Lengths below and above the queries that the kernel takes at a time.
LENGTHS = st.one_of(SIZES, st.sampled_from([64, 126, 127, 300]))
WIDTHS = st.one_of(SIZES, st.sampled_from([64, 70]))


@pytest.fixture(scope="module", autouse=True)
def on_this_processor():
    x = torch.zeros(1, 1, 1, 1)
    if attend(x, x, x, ScoreTerms()) is None:
        pytest.skip("no compiler, or no AVX-512 or AVX2 in this processor")


def written_out(q, k, v, bias, hidden):
    """B×H×T×D; hidden keys have no weight, and a query without keys gets 0."""
    scores = q.double() @ k.double().mT
    if bias is not None:
        scores = scores + bias.double()
    return scores.masked_fill(hidden, -torch.inf).softmax(-1).nan_to_num() @ v.double()


@examples
@given(st.data())
@torch.no_grad()
def test_against_float64(data):
    batch = data.draw(st.integers(1, 3))
    heads = data.draw(st.integers(1, 3))
    length = data.draw(LENGTHS)
    width = data.draw(WIDTHS)
    depth = data.draw(WIDTHS)
    shapes = [(batch, heads, length, each) for each in (width, width, depth)]
    shapes.append((heads, length, length))
    q, k, v, bias = (data.draw(tensors(*shape)) for shape in shapes)
    # So that scores of constant vectors are not so large that rounding them exceeds the tolerance.
    q = q / width
    if data.draw(st.booleans()):
        # As in a layer: all heads of a token beside each other
        q, k, v = (each.transpose(1, 2).contiguous().transpose(1, 2) for each in (q, k, v))
    number = st.integers(-1, length + 1)
    lengths = data.draw(st.none() | st.lists(number, min_size=batch, max_size=batch))
    visible = data.draw(st.none() | st.tuples(st.integers(-50, 0), st.integers(0, 50)))
    distance = torch.arange(length) - torch.arange(length)[:, None]
    outside = torch.zeros(length, length, dtype=torch.bool)
    if visible is not None:
        outside = (distance < visible[0]) | (distance > visible[1])
        if bias.shape == shapes[-1]:
            bias = bias.masked_fill(outside, HIDDEN)

    def compute():
        out = attend(q, k, v, ScoreTerms(bias), lengths, visible)
        if out is None:
            raise ValueError
        assert out.transpose(1, 2).is_contiguous()
        return out

    def define():
        counts = torch.tensor([length] * batch if lengths is None else lengths)
        padding = torch.arange(length) >= counts[:, None, None, None]
        return written_out(q, k, v, bias, padding | outside).masked_fill(padding.mT, 0)

    same_or_refused(compute, define, *zip((q, k, v, bias), shapes, strict=True))


@pytest.mark.parametrize("length", [5, 16, 50])
def test_weights_of_all_sizes(length):
    """Of scores down to -120: those that fp32 cannot hold with full accuracy are 0."""
    scores = torch.linspace(0, -120, length)
    q, k = torch.ones(2, 1, 1, length, 1)
    weights = attend(q, k, torch.eye(length)[None, None], ScoreTerms(scores.repeat(1, length, 1)))
    exact = scores.double().softmax(-1).expand(length, length)
    assert_close(weights[0, 0], exact)
    small = (scores > -85).expand(length, length)
    torch.testing.assert_close(weights[0, 0][small].double(), exact[small], rtol=2e-6, atol=0)


def test_padding_anywhere():
    q, k, v = (torch.randn(3, 2, 19, 8) for _ in range(3))
    padding = torch.rand(3, 19) < 0.4
    padding[:, 5] = False
    scores = torch.zeros(3, 1, 19).masked_fill(padding[:, None], HIDDEN)
    expected = written_out(q, k, v, None, padding[:, None, None])
    assert_close(attend(q, k, v, ScoreTerms(padding=scores)), expected)


def test_what_it_leaves_to_others(request):
    q = torch.randn(1, 1, 4, 8)
    assert attend(q, q, q, ScoreTerms(p=0.1)) is None
    assert attend(q.double(), q.double(), q.double(), ScoreTerms()) is None
    request.getfixturevalue("without_kernels")
    assert attend(q, q, q, ScoreTerms()) is None
