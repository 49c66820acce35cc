"""The content-free scores against loops, and facts of the paper."""

import pytest
import torch
from torch import nn

from tests.attention.cases import EMBED_DIM, ENCODINGS, NUM_HEADS, Weighing, normal, run
from tests.attention.cases import build as build_attention
from tests.attention.loops import references
from tests.covering import covering
from tests.tolerances import assert_close, assert_gradients_close, assert_not_zero, assert_zero
from tupe_fairseq.position import build_position_encoding

LENGTH = 9
SCORES = references("positional_score")
CASES = [case for case, (name, _) in ENCODINGS.items() if name in SCORES]
#: Queries T, keys S, position of the first query.
CELLS = ((1, 1, 0), (6, 6, 0), (9, 9, 0), (4, 9, 0), (1, 9, 8), (3, 7, 2), (2, 9, 7))


def build(case, dtype=torch.float64):
    return build_attention(case, LENGTH, dtype)[0].at(0)


def by_loops(case, encoding, queries, keys, start=0):
    name, options = ENCODINGS[case]
    positions = {name: p.detach().double() for name, p in encoding.named_parameters()}
    for p in positions.values():
        p.requires_grad_()
    return SCORES[name](positions, NUM_HEADS, queries, keys, start, **options), positions


@pytest.mark.parametrize(
    ("case", "cells", "dtype"), covering(CASES, CELLS, (torch.float64, torch.float32)), ids=str
)
def test_dense_score_and_gradients_equal_the_loops(case, cells, dtype):
    queries, keys, start = cells
    encoding = build(case, dtype)
    score = encoding.attention_bias(queries, keys, start).dense()
    expected, positions = by_loops(case, encoding, queries, keys, start)
    assert_close(score, expected)
    weights = normal(*expected.shape, seed=2, dtype=torch.float64)
    assert_gradients_close(
        gradients((score * weights).sum(), dict(encoding.named_parameters())),
        gradients((expected * weights).sum(), positions),
        dtype,
    )


def gradients(loss, parameters):
    if not parameters:
        return {}
    found = torch.autograd.grad(
        loss, list(parameters.values()), allow_unused=True, materialize_grads=True
    )
    return dict(zip(parameters, found, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_half_precision_models_keep_fp32_scores(case):
    """Rounded to bfloat16, the bias would be wrong alike in every layer."""
    assert build(case, torch.bfloat16).attention_bias(5, 5).dense().dtype == torch.float32


@pytest.mark.parametrize("case", CASES)
def test_autocast_does_not_round_the_score(case):
    """Projections of positions and their product stay in fp32, and so does the bias added."""
    encoding, attention = build_attention(case, LENGTH)
    for parameter in attention.q_proj.parameters():
        nn.init.zeros_(parameter)
    scores = []
    backend = Weighing(lambda each: scores.append(each) or each)
    with torch.autocast("cpu", torch.bfloat16):
        run(encoding, attention, torch.zeros(1, LENGTH, EMBED_DIM), backend=backend)
    assert torch.equal(scores[0][0], encoding.at(0).attention_bias(LENGTH, LENGTH).dense())


def test_autocast_does_not_round_rows_of_the_bias():
    """Rows are computed one by one in decoding, and where the term is too large to be stored."""
    encoding, _ = build_attention("tupe_a", 64, bidirectional=False)
    bias = encoding.attention_bias(64, 64)
    with torch.autocast("cpu", torch.bfloat16):
        found = bias.row(40).cells
    assert torch.equal(found, bias.row(40).cells)


def test_toeplitz_needs_memory_that_grows_with_the_length_alone():
    bias = build_attention("tupe_r-toeplitz", 40)[0].attention_bias(40, 40)
    sizes = {name: part.numel() // NUM_HEADS for name, part in bias.parts().items()}
    assert sizes["exact"] == 5**2
    assert max(sizes.values()) < 4 * 40


@pytest.mark.parametrize("case", ["tupe_a", "tupe_r"])
def test_theta1_is_inert_and_theta2_is_not(case):
    """Row 0 is constant over j and softmax is shift-invariant (fact 1)."""
    encoding = build(case)
    content = torch.randn(2, NUM_HEADS, LENGTH, LENGTH, generator=torch.manual_seed(0)).double()
    values = torch.randn(2, NUM_HEADS, LENGTH, 4).double()
    weights = (content + encoding.attention_bias(LENGTH, LENGTH).dense()).softmax(-1)
    (weights @ values).square().sum().backward()
    theta1, theta2, *positions = encoding.weight.grad
    assert_zero(theta1)
    for row in (theta2, *positions[: LENGTH - 1]):
        assert_not_zero(row)
    if case == "tupe_r":
        from_cls = encoding.relative_bias.from_cls
        to_cls = encoding.relative_bias.to_cls
        assert_zero(encoding.relative_bias.weight.grad[from_cls])
        assert_not_zero(encoding.relative_bias.weight.grad[to_cls])


def count(name):
    encoding = build_position_encoding(name, 768, 12, 512)
    return sum(parameter.numel() for parameter in encoding.parameters())


def test_parameter_counts_of_the_release():
    """Models of 12 layers, 32,769 words: BERT-A 111,240,705, TUPE-A 112,424,193 (fact 5).

    They differ in positions alone: BERT-A has a table of 512 rows.
    """
    bert_a = 111_240_705
    tupe_a = 112_424_193
    assert count("tupe_a") - 512 * 768 == tupe_a - bert_a
    assert count("tupe_r") - count("tupe_a") == 396
