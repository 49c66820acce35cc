"""Constant tables, and the dtypes of sums."""

import copy

import pytest
import torch
from torch import nn

from tests.reference.sinusoidal import wave
from tests.tolerances import assert_close
from tupe_fairseq.position.tables import ConstantTable, sinusoids, widened

CASTS = {
    "none": lambda module: module,
    "half": lambda module: module.half(),
    "bfloat16": lambda module: module.bfloat16(),
    "double": lambda module: module.double(),
    "float": lambda module: module.half().float(),
    "to": lambda module: module.to("cpu", torch.float16),
    "copy": copy.deepcopy,
}


@pytest.mark.parametrize("cast", CASTS)
def test_constant_table_stays_exact(cast):
    """To the last bit, inside a model."""
    values = torch.randn(9, 4, dtype=torch.float64)
    table = CASTS[cast](nn.Sequential(nn.Linear(2, 2), ConstantTable(values)))[1]
    assert torch.equal(table(torch.float64), values)
    assert torch.equal(table(torch.float64, slice(2, 5)), values[2:5])
    assert torch.equal(table(torch.float64, torch.tensor([8, 0])), values[[8, 0]])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_constant_table_is_given_in_fp32_at_least(dtype):
    values = torch.randn(9, dtype=torch.float64)
    given = ConstantTable(values)(dtype)
    assert given.dtype == widened(dtype) == torch.float32
    assert torch.equal(given, values.float())
    assert widened(torch.float64) == torch.float64


def test_constant_table_is_not_saved_and_not_trained():
    table = ConstantTable(torch.zeros(9, 4))
    assert not table.state_dict()
    assert not list(table.parameters())
    assert [name for name, _ in table.named_buffers()] == ["bits"], "moves with the model"


@pytest.mark.parametrize("width", [1, 2, 7, 12])
def test_sinusoids_equal_the_loops(width):
    positions = torch.tensor([0, 1, 5, 511, -1, -3])
    expected = torch.stack([wave(int(k), width) for k in positions])
    found = sinusoids(positions, width)
    assert found.dtype == torch.float64
    assert_close(found, expected)
