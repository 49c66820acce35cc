"""Constant tables stay exact in a model that is cast to another dtype, and are not saved."""

import copy

import pytest
import torch

from tests.attention.cases import EMBED_DIM, NUM_HEADS, normal
from tupe_fairseq import build_position_encoding

CASTS = {
    "half": lambda module: module.half(),
    "bfloat16": lambda module: module.bfloat16(),
    "double": lambda module: module.double(),
    "float": lambda module: module.half().float(),
    "to": lambda module: module.to("cpu", torch.float16),
    "copy": copy.deepcopy,
}


@pytest.mark.parametrize("cast", CASTS)
@pytest.mark.parametrize("name", ["sinusoidal", "rope", "sandwich"])
def test_constant_tables(name, cast):
    """To the last bit."""

    def positions(encoding):
        x = normal(1, NUM_HEADS, 9, EMBED_DIM // NUM_HEADS, seed=0, dtype=torch.float64)
        if encoding.uses("attention_bias"):
            return encoding.attention_bias(9, 9).dense()
        if encoding.uses("rotate"):
            return torch.stack(encoding.rotate(x, x, x))
        return encoding.embed(torch.zeros(1, 9, EMBED_DIM, dtype=torch.float64))

    encoding = build_position_encoding(name, EMBED_DIM, NUM_HEADS, 9)
    expected = positions(encoding)
    encoding = CASTS[cast](encoding)
    assert torch.equal(positions(encoding), expected)
    assert not encoding.state_dict()
    assert not list(encoding.parameters())
    assert list(encoding.buffers()), "moves with the model"
