"""The content-free scores against loops, and facts of the paper."""

import pytest
import torch
from torch import nn

from tests.reference import alibi, fire, kerple, sandwich, t5, tupe
from tests.tolerances import assert_close, assert_gradients_close, assert_not_zero, assert_zero
from tupe_fairseq.attention import share_attention
from tupe_fairseq.position import build_position_encoding

EMBED_DIM, NUM_HEADS, LENGTH = 12, 3, 9
BUCKETS = {"num_buckets": 8, "max_distance": 6}
ONE_SIDED = {"bidirectional": False, **BUCKETS}

#: Test id -> registered name, arguments, reference.
CASES = {
    "t5": ("t5", BUCKETS, t5.positional_score),
    "t5-one_sided": ("t5", ONE_SIDED, t5.positional_score),
    "tupe_a": ("tupe_a", {}, tupe.positional_score),
    "tupe_a-tie_cls": ("tupe_a", {"tie_cls": True}, tupe.positional_score),
    "tupe_r": ("tupe_r", BUCKETS, tupe.positional_score),
    "tupe_r-tie_cls": ("tupe_r", {"tie_cls": True, **BUCKETS}, tupe.positional_score),
    "tupe_r-one_sided": ("tupe_r", ONE_SIDED, tupe.positional_score),
    "alibi": ("alibi", {}, alibi.positional_score),
    # w is 0.13: cells from position 6 on, and a table by distance throughout.
    "fire": ("fire", {"fire_width": 4, "fire_threshold": 40}, fire.positional_score),
    "fire-wide": ("fire", {"fire_width": 4, "fire_threshold": 400}, fire.positional_score),
    "kerple_log": ("kerple_log", {}, kerple.logarithmic_score),
    "kerple_power": ("kerple_power", {}, kerple.power_score),
    "sandwich": ("sandwich", {}, sandwich.positional_score),
}
#: Queries T, keys S, position of the first query.
CELLS = ((1, 1, 0), (9, 9, 0), (4, 9, 0), (1, 9, 8), (3, 7, 2), (2, 9, 7))


def build(case, dtype=torch.float64):
    name, options, _ = CASES[case]
    encoding = build_position_encoding(name, EMBED_DIM, NUM_HEADS, LENGTH, **options)
    generator = torch.Generator().manual_seed(1)
    for parameter in encoding.parameters():
        nn.init.normal_(parameter, std=0.5, generator=generator)
    return encoding.to(dtype).at(0)


def by_loops(case, encoding, queries, keys, start=0):
    _, options, positional_score = CASES[case]
    positions = {name: p.detach().double() for name, p in encoding.named_parameters()}
    for p in positions.values():
        p.requires_grad_()
    score = positional_score(positions, NUM_HEADS, queries, keys, start, **options)
    return score, positions


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(("queries", "keys", "start"), CELLS)
@pytest.mark.parametrize("case", CASES)
def test_dense_score_and_gradients_equal_the_loops(case, queries, keys, start, dtype):
    encoding = build(case, dtype)
    score = encoding.attention_bias(queries, keys, start).dense()
    expected, positions = by_loops(case, encoding, queries, keys, start)
    assert_close(score, expected)
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(2)).double()
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
    encoding = build(case, torch.float32)
    x = torch.zeros(1, LENGTH, encoding.shape.embed_dim)
    with torch.autocast("cpu", torch.bfloat16):
        bias, *_ = share_attention(encoding, x, backend="eager").prepared
    assert torch.equal(bias, encoding.attention_bias(LENGTH, LENGTH).dense())


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
        from_cls, to_cls = encoding.relative_bias.from_cls, encoding.relative_bias.to_cls
        assert_zero(encoding.relative_bias.weight.grad[from_cls])
        assert_not_zero(encoding.relative_bias.weight.grad[to_cls])


def count(name):
    encoding = build_position_encoding(name, 768, 12, 512)
    return sum(parameter.numel() for parameter in encoding.parameters())


def test_parameter_counts_of_the_release():
    """Models of 12 layers, 32,769 words: BERT-A 111,240,705, TUPE-A 112,424,193 (fact 5).

    They differ in positions alone: BERT-A has a table of 512 rows.
    """
    bert_a, tupe_a = 111_240_705, 112_424_193
    assert count("tupe_a") - 512 * 768 == tupe_a - bert_a
    assert count("tupe_r") - count("tupe_a") == 396
