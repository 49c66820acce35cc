"""The end of a post-LN block in one pass, against its equation in float64."""

import pytest
import torch
from torch import nn

from tests.tolerances import assert_close
from tupe_fairseq.kernels.layer_norm import add_and_normalise


@pytest.fixture
def norm():
    torch.manual_seed(0)
    norm = nn.LayerNorm(67, eps=1e-3)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm


def by_equation(x, residual, norm):
    total = x.double() + residual.double()
    centred = total - total.mean(-1, keepdim=True)
    deviation = (centred.square().mean(-1, keepdim=True) + norm.eps).sqrt()
    return centred / deviation * norm.weight.double() + norm.bias.double()


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("shape", [(5, 67), (2, 3, 67), (0, 67)])
def test_equals_the_equation(way, norm, shape, gradients):
    # Far from 0, where a variance by squares less the squared mean would lose its digits.
    x, residual = 10 + torch.randn(2, *shape)
    with torch.set_grad_enabled(gradients):
        found = add_and_normalise(x, residual, norm)
    assert found.requires_grad is gradients
    assert_close(found, by_equation(x, residual, norm))


def test_strided_inputs(norm):
    x, residual = torch.randn(2, 67, 5).mT
    with torch.no_grad():
        assert_close(add_and_normalise(x, residual, norm), by_equation(x, residual, norm))


def test_inputs_are_left_alone(norm):
    inputs = torch.randn(2, 5, 67)
    before = inputs.clone()
    with torch.no_grad():
        add_and_normalise(*inputs, norm)
    assert torch.equal(inputs, before)


def test_hooks_are_called(norm):
    seen = []
    norm.register_forward_hook(lambda *call: seen.append(call))
    with torch.no_grad():
        add_and_normalise(*torch.randn(2, 5, 67), norm)
    assert len(seen) == 1
