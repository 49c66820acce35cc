"""Biases that hide keys by −inf or by very low values, and NaN, give what `eager` gives."""

import math

import pytest
import torch
from torch import nn

from tests.attention.cases import EMBED_DIM, NUM_HEADS, attention_of, enlarged, gradients, normal
from tests.tolerances import assert_close, assert_gradients_close
from tupe_fairseq.attention import share_attention
from tupe_fairseq.position import AttentionBias, PositionEncoding
from tupe_fairseq.position.base import Shape
from tupe_fairseq.position.indices import distances

LENGTH, REACH = 40, 3
#: The last hides the query itself, too: all scores of the first rows are the lowest of fp32.
HIDING = {
    "-inf": (-math.inf, REACH),
    "-3e38": (-3e38, REACH),
    "-2e9": (-2e9, REACH),
    "all, lowest": (torch.finfo(torch.float32).min, -LENGTH),
    "nan": (math.nan, LENGTH - 2),
}


class Hiding(PositionEncoding):
    """Adds a value to the scores of keys beyond a distance, and learned ones to all."""

    def __init__(self, value, reach):
        super().__init__(Shape(EMBED_DIM, NUM_HEADS, LENGTH))
        self.value, self.reach = value, reach
        self.weight = nn.Parameter(normal(NUM_HEADS, 2 * LENGTH - 1, seed=2))

    def attention_bias(self, queries, keys, start=0):
        far = distances(queries, keys, start).abs() > self.reach
        hidden = torch.zeros(len(far)).masked_fill(far, self.value)
        return AttentionBias(keys, by_distance=self.weight + hidden, start=start)


def attended(encoding, backend, trained):
    """The output, and the gradients where they are recorded."""
    attention = enlarged(attention_of(encoding), 1)
    x = normal(2, LENGTH, EMBED_DIM, seed=0).requires_grad_(trained)
    out = attention(x, share_attention(encoding, x, backend=backend))
    return out.detach(), gradients(out, x, encoding, attention) if trained else {}


@pytest.mark.parametrize("trained", [False, True], ids=["evaluated", "trained"])
@pytest.mark.parametrize("case", HIDING)
def test_extreme_biases_are_as_in_eager(way, case, trained):
    encoding = Hiding(*HIDING[case])
    with torch.set_grad_enabled(trained):
        found, of_found = attended(encoding, "blocked", trained)
        expected, of_expected = attended(encoding, "eager", trained)
    assert torch.equal(found.isnan(), expected.isnan())
    if case == "nan":
        assert found.isnan().any()
        assert not found.isnan().all()
        return
    assert_close(found, expected)
    assert_gradients_close(of_found, of_expected, torch.float32)
