"""FIRE at a length whose hidden values are computed in blocks, and again backward."""

import torch
from torch import nn

from tests.attention.cases import enlarged, normal
from tests.tolerances import assert_close, assert_gradients_close
from tupe_fairseq import build_position_encoding


def test_blocks_change_nothing():
    length = 2100
    options = {"fire_width": 4, "fire_threshold": 3}
    encoding = enlarged(build_position_encoding("fire", 8, 2, 9, **options), 1).double()
    layer = encoding.at(0)
    nn.init.ones_(layer.w)
    score = layer.attention_bias(length, length).dense()
    assert length * length * layer.hidden_bias.numel() > 1 << 24
    rows = torch.tensor([0, 1, 1040, length - 1])
    expected = [layer.attention_bias(1, length, row).dense() for row in rows.tolist()]
    expected = torch.cat(expected, 1)
    weights = normal(2, len(rows), length, seed=2).double()
    assert_close(score[:, rows], expected)
    parameters = dict(layer.named_parameters())
    made, wanted = (
        torch.autograd.grad((each * weights).sum(), parameters.values())
        for each in (score[:, rows], expected)
    )
    made, wanted = (dict(zip(parameters, each, strict=True)) for each in (made, wanted))
    assert_gradients_close(made, wanted, torch.float64)
