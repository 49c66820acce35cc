"""KERPLE and Sandwich: bounds, initial values, and numbers computed by hand."""

import math

import pytest
import torch

from tests.tolerances import assert_close
from tupe_fairseq import build_position_encoding


def kernel_of(name, p, a, dtype=torch.float64):
    """The bias at distances 0, 1, 2, ..., 600 for one head."""
    encoding = build_position_encoding(name, 4, 1, 601).to(dtype)
    fill(encoding, p, a)
    return encoding.attention_bias(1, 601).dense()[0, 0]


def fill(encoding, *values):
    """Set the two parameters, p first."""
    for parameter, value in zip(encoding.parameters(), values, strict=True):
        torch.nn.init.constant_(parameter, value)


def test_by_hand():
    assert_close(kernel_of("kerple_log", 1.5, 0.5)[2], number(-1.5 * math.log(2)))
    assert_close(kernel_of("kerple_power", 0.5, 0.25)[16], number(-1.0))
    # One pair of width 2: cos(3/10000) − 1; the first of two heads has 2/8.
    score = (
        build_position_encoding("sandwich", 4, 2, 9, sandwich_width=2).attention_bias(9, 9).dense()
    )
    assert_close(score[0, 0, 3] * 1e7, number((math.cos(3e-4) - 1) / 4 * 1e7))
    assert_close(score[1, 5, 2] * 1e7, number((math.cos(3e-4) - 1) / 8 * 1e7))


def number(value):
    return torch.tensor(value, dtype=torch.float64)


@pytest.mark.parametrize("name", ["kerple_log", "kerple_power"])
def test_parameters_out_of_bounds_act_as_the_bounds(name):
    assert_close(kernel_of(name, -1.0, -2.0), kernel_of(name, 0.01, 0.01))
    if name == "kerple_power":
        assert_close(kernel_of(name, 3.0, 1.0), kernel_of(name, 2.0, 1.0))


@pytest.mark.parametrize("name", ["kerple_log", "kerple_power"])
def test_parameters_out_of_bounds_have_gradients(name):
    """Or else they would never come back."""
    encoding = build_position_encoding(name, 4, 1, 9)
    fill(encoding, -1.0, -1.0)
    encoding.attention_bias(9, 9).dense().sum().backward()
    for parameter in encoding.parameters():
        assert parameter.grad.isfinite().all()
        assert parameter.grad.abs().min() > 0


def test_initial_values_are_uniform():
    """p over (0, 2), a over (0, 1): means within five standard errors, and no value outside."""
    encoding = build_position_encoding("kerple_log", 4000, 4000, 2)
    for values, top in ((encoding.strength, 2), (encoding.rate, 1)):
        assert 0 <= values.min() < 0.01 * top
        assert 0.99 * top < values.max() <= top
        assert abs(values.mean() - top / 2) < 5 * top / math.sqrt(12 * 4000)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_kernels_in_half_precision_are_exact_in_fp32(dtype):
    """Distances beyond 256 have no representation in bfloat16."""
    p, a = (torch.tensor(x, dtype=dtype).item() for x in (1.3, 0.7))
    found, expected = kernel_of("kerple_power", p, a, dtype), kernel_of("kerple_power", p, a)
    assert found.dtype == torch.float32
    assert_close(found, expected)
