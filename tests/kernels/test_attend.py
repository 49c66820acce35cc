"""Attention by the kernel in C against attention written out in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tolerances import assert_close
from tupe_fairseq.kernels.attend import attend
from tupe_fairseq.kernels.softmax import ScoreTerms
from tupe_fairseq.position.bias import HIDDEN

#: Lengths below and above the queries that the kernel takes at a time.
LENGTHS = st.one_of(st.integers(1, 40), st.sampled_from([64, 126, 127, 300]))


@pytest.fixture(scope="module", autouse=True)
def on_this_processor():
    x = torch.zeros(1, 1, 1, 1)
    if attend(x, x, x, ScoreTerms()) is None:
        pytest.skip("no compiler, or torch's kernels are as fast on this processor")


def written_out(q, k, v, bias, hidden):
    scores = q.double() @ k.double().mT
    if bias is not None:
        scores = scores + bias.double()
    return scores.masked_fill(hidden, HIDDEN).softmax(-1) @ v.double()


@settings(max_examples=60)
@given(
    batch=st.integers(1, 3),
    heads=st.integers(1, 3),
    length=LENGTHS,
    widths=st.tuples(st.integers(1, 70), st.integers(1, 70)),
    biased=st.booleans(),
    reach=st.none() | st.tuples(st.integers(0, 50), st.integers(0, 50)),
    shares=st.none() | st.lists(st.floats(0, 1), min_size=3, max_size=3),
    seed=st.integers(0, 99),
)
def test_against_float64(batch, heads, length, widths, biased, reach, shares, seed):
    generator = torch.Generator().manual_seed(seed)
    keys, values = widths
    # As in a layer: all heads of a token beside each other
    joint = torch.randn(batch, length, heads, 2 * keys + values, generator=generator)
    q, k, v = joint.transpose(1, 2).split((keys, keys, values), -1)
    q = q / keys**0.5
    distance = torch.arange(length) - torch.arange(length)[:, None]
    bias = torch.randn(heads, length, length, generator=generator) if biased or reach else None
    hidden = torch.zeros(batch, 1, length, length, dtype=torch.bool)
    visible = None
    if reach is not None:
        visible = (-reach[0], reach[1])
        outside = (distance < visible[0]) | (distance > visible[1])
        hidden |= outside
        bias = bias.masked_fill(outside, HIDDEN)
    lengths = None
    if shares is not None:
        lengths = [round(share * length) for share in shares[:batch]]
        hidden |= (torch.arange(length) >= torch.tensor(lengths)[:, None])[:, None, None]
    out = attend(q, k, v, ScoreTerms(bias), lengths, visible)
    expected = written_out(q, k, v, bias, hidden)
    assert out.transpose(1, 2).is_contiguous()
    for b in range(batch):
        count = length if lengths is None else lengths[b]
        assert not out[b, :, count:].any()
        if count:
            assert_close(out[b, :, :count], expected[b, :, :count])


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
    strided = torch.randn(1, 1, 8, 4).mT
    hidden = torch.zeros(4, 4, dtype=torch.bool)
    expected = written_out(q, strided, strided, None, hidden)
    assert_close(attend(q, strided, strided, ScoreTerms()), expected)
    request.getfixturevalue("without_kernels")
    assert attend(q, q, q, ScoreTerms()) is None
