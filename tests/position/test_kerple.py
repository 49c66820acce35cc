"""KERPLE: bounds of its parameters, and half precision."""

import pytest
import torch

from tests.tolerances import assert_close
from tupe_fairseq import build_position_encoding


def kernel_of(name, p, a, dtype=torch.float64):
    """The bias at distances 0, 1, 2, ..., 600 for one head."""
    encoding = build_position_encoding(name, 4, 1, 601).to(dtype)
    for parameter, value in zip(encoding.parameters(), (p, a), strict=True):
        torch.nn.init.constant_(parameter, value)
    return encoding.attention_bias(1, 601).dense()[0, 0]


@pytest.mark.parametrize("name", ["kerple_log", "kerple_power"])
def test_parameters_out_of_bounds_act_as_the_bounds(name):
    assert_close(kernel_of(name, -1.0, -2.0), kernel_of(name, 0.01, 0.01))
    if name == "kerple_power":
        assert_close(kernel_of(name, 3.0, 1.0), kernel_of(name, 2.0, 1.0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_kernels_in_half_precision_are_exact_in_fp32(dtype):
    """Distances beyond 256 have no representation in bfloat16."""
    p, a = (torch.tensor(x, dtype=dtype).item() for x in (1.3, 0.7))
    found = kernel_of("kerple_power", p, a, dtype)
    expected = kernel_of("kerple_power", p, a)
    assert found.dtype == torch.float32
    assert_close(found, expected)
