"""Linear layers in 8 bits."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tupe_fairseq.kernels.quantized import QuantizedLinear


@torch.no_grad()
@pytest.mark.parametrize("rows", [(1,), (3, 5), (700,)])
@pytest.mark.parametrize("bias", [True, False])
def test_products_are_those_of_the_rounded_factors(rows, bias):
    """Weights in steps of 1/63 of a row's largest, inputs in steps of 1/255 of their range."""
    torch.manual_seed(1)
    engine = torch.backends.quantized.engine
    layer = nn.Linear(96, 64, bias)
    quantized = QuantizedLinear(layer)
    x = torch.randn(*rows, 96)
    steps = layer.weight.abs().amax(1, keepdim=True) / 63
    step = (x.max().clamp(min=0) - x.min().clamp(max=0)) / 255
    expected = F.linear((x / step).round() * step, (layer.weight / steps).round() * steps)
    expected = expected + layer.bias if bias else expected
    # An input half-way between two steps may become either.
    bound = float(step * layer.weight.abs().max())
    for each in (quantized, copy.deepcopy(quantized)):
        torch.testing.assert_close(each(x), expected, rtol=0, atol=bound)
    assert torch.backends.quantized.engine == engine


@torch.no_grad()
def test_large_factors_do_not_overflow():
    """As they would in 8 bits each, on processors without VNNI; and rows of zeros stay."""
    layer = nn.Linear(64, 3, bias=False)
    layer.weight.copy_(torch.tensor([1.0, -1.0, 0.0])[:, None])
    out = QuantizedLinear(layer)(torch.full((2, 64), 5.0))
    torch.testing.assert_close(out, torch.tensor([[320.0, -320.0, 0.0]]).expand(2, 3))


def test_layers_are_sent_to_processes():
    """As by a pool of sentence-transformers, after tensors have moved to shared memory."""
    quantized = QuantizedLinear(nn.Linear(96, 64)).share_memory()
    context = torch.multiprocessing.get_context("spawn")
    process = context.Process(target=quantized, args=(torch.randn(3, 96),))
    process.start()
    process.join()
    assert process.exitcode == 0
