"""Keys hidden by causality, by windows and by biases."""

import functools
import math

import pytest
import torch
from torch import nn

from tests.attention.cases import (
    BACKENDS,
    EMBED_DIM,
    NUM_HEADS,
    attention_of,
    build,
    enlarged,
    gradients,
    normal,
    padding_mask,
    run,
    run_seeing,
    served,
)
from tests.tolerances import assert_close, assert_gradients_close
from tupe_fairseq.attention import Feature
from tupe_fairseq.position import POSITION_ENCODINGS, AttentionBias, PositionEncoding, Shape
from tupe_fairseq.position.indices import distances

#: FLOATER's solver takes other steps in float64; its attention is that of `learned`.
NAMES = sorted(set(POSITION_ENCODINGS) - {"floater"})
CASES = [*NAMES, "tupe_a-tie_cls", "tupe_r-tie_cls", "tupe_r-toeplitz"]
LENGTH = 9
PADDED = padding_mask(9, 0, 3)
#: Padding, and how attention is called.
HIDING = {
    "causal": (None, {"causal": True}),
    "window": (None, {"window": 3}),
    "two keys": (None, {"window": LENGTH - 2}),
    "no key": (None, {"window": LENGTH - 1}),
    "window-padded": (PADDED, {"window": 3}),
    "both-padded": (PADDED, {"causal": True, "window": 3}),
}


def with_gradients(attend, encoding, attention, padding=None):
    """The output at tokens, 0 at padding, and all gradients."""
    x = normal(2, LENGTH, EMBED_DIM, seed=0).to(attention.out_proj.weight).requires_grad_()
    out = attend(encoding, attention, x, padding)
    out = out if padding is None else out * ~padding[:, :, None]
    return out.detach(), gradients(out, x, encoding, attention)


def assert_as(expected, found):
    assert_close(found[0], expected[0])
    assert_gradients_close(found[1], expected[1], torch.float32)


@functools.cache
def expected_of(case, hiding):
    """In float64, each query by itself. An untied [CLS] is outside of any window."""
    encoding, attention = build(case, LENGTH, torch.float64)
    padding, how = HIDING[hiding]
    i = torch.arange(LENGTH)[:, None]
    j = torch.arange(LENGTH)
    visible = (i - j).abs() <= how.get("window", LENGTH)
    if encoding.untie_cls:
        visible = visible | (i == 0) | (j == 0)
    if "causal" in how:
        visible = visible & (j <= i)
    seeing = functools.partial(run_seeing, visible)
    return with_gradients(seeing, encoding, attention, padding)


@pytest.mark.parametrize("hiding", HIDING)
@pytest.mark.parametrize(
    ("backend", "case"), served(BACKENDS, CASES, Feature.DECODER, Feature.WINDOW)
)
def test_hidden_keys_have_no_weight(backend, case, hiding):
    padding, how = HIDING[hiding]
    attend = functools.partial(run, backend=backend, **how)
    found = with_gradients(attend, *build(case, LENGTH), padding)
    assert_as(expected_of(case, hiding), found)


LONG = 40
REACH = 3
#: The last hides the query itself, too: all scores of the first rows are the lowest of fp32.
EXTREME = {
    "-inf": (-math.inf, REACH),
    "-3e38": (-3e38, REACH),
    "-2e9": (-2e9, REACH),
    "all, lowest": (torch.finfo(torch.float32).min, -LONG),
    "nan": (math.nan, LONG - 2),
}


class Hiding(PositionEncoding):
    """Adds a value to the scores of keys beyond a distance, and learned ones to all."""

    def __init__(self, value, reach):
        super().__init__(Shape(EMBED_DIM, NUM_HEADS, LONG))
        self.value = value
        self.reach = reach
        self.weight = nn.Parameter(normal(NUM_HEADS, 2 * LONG - 1, seed=2))

    def attention_bias(self, queries, keys, start=0):
        far = distances(queries, keys, start).abs() > self.reach
        hidden = torch.zeros(len(far)).masked_fill(far, self.value)
        return AttentionBias(keys, by_distance=self.weight + hidden, start=start)


@pytest.mark.parametrize("trained", [False, True], ids=["evaluated", "trained"])
@pytest.mark.parametrize("case", EXTREME)
def test_extreme_biases_are_as_in_eager(way, case, trained):
    """Keys hidden by −inf or by very low values, and NaN."""
    encoding = Hiding(*EXTREME[case])
    attention = enlarged(attention_of(encoding), 1)
    x = normal(2, LONG, EMBED_DIM, seed=0).requires_grad_(trained)
    made = []
    for backend in ("blocked", "eager"):
        with torch.set_grad_enabled(trained):
            out = run(encoding, attention, x, backend=backend)
            of_out = gradients(out, x, encoding, attention) if trained else {}
        made.append((out.detach(), of_out))
    found, expected = made
    assert torch.equal(found[0].isnan(), expected[0].isnan())
    if case == "nan":
        assert found[0].isnan().any()
        assert not found[0].isnan().all()
        return
    assert_as(expected, found)
