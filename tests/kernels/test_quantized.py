"""Linear layers in 8 bits."""

import copy
import os
import pickle
import subprocess
import sys
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests import ROOT
from tupe_fairseq import UsageError
from tupe_fairseq.kernels import native, quantized
from tupe_fairseq.kernels.quantized import QuantizedLinear

#: Rows for each kernel: that in C with and without missing rows, and oneDNN with and without more.
ROWS = (1, 16, 64, 65, 130)


def layer_of(width: int = 96, outputs: int = 50, bias: bool = True) -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(width, outputs, bias)


def rounded(x: Tensor, low: Tensor, steps: Tensor) -> Tensor:
    """Numbers at whole multiples of steps above `low`."""
    return low + ((x - low) / steps).round() * steps


def pairs_of(row: Tensor) -> tuple[Tensor, Tensor]:
    """The first and the second of each two neighbours; beside the last may be none."""
    return row[::2], F.pad(row[1::2], (0, len(row) % 2))


@torch.no_grad()
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(
    ("width", "outputs", "bias"), [(96, 50, True), (97, 50, False), (96, 150, True)]
)
def test_products_are_those_of_the_rounded_factors(rows, width, outputs, bias, way):
    """Weights in steps of 1/127 of a row's largest, inputs in steps of 1/255 of a row's range.

    Without VNNI, the largest of a row may be the sum of two neighbours.
    """
    layer = layer_of(width, outputs, bias).double()
    x = torch.randn(rows, width, dtype=torch.double)
    quantized = QuantizedLinear(copy.deepcopy(layer).float())
    largest = layer.weight.abs().amax(1, keepdim=True)
    if quantized.for_pairs:
        sums = [abs(a + b).max() for a, b in map(pairs_of, layer.weight)]
        largest = torch.maximum(largest, torch.stack(sums)[:, None])
    weight = rounded(layer.weight, 0, largest / 127)
    low = x.amin(1, keepdim=True)
    steps = (x.amax(1, keepdim=True) - low) / 255
    expected = F.linear(rounded(x, low, steps), weight, layer.bias)
    # An input half-way between two steps may become either.
    bound = float(steps.max() * weight.abs().max())
    for each in (quantized, copy.deepcopy(quantized), pickle.loads(pickle.dumps(quantized))):
        out = each(x.float())
        torch.testing.assert_close(out.double(), expected, rtol=0, atol=bound)
        error = (out - expected).norm() / expected.norm()
        assert error < 2e-3


@torch.no_grad()
@pytest.mark.parametrize(("width", "outputs"), [(96, 50), (97, 50), (96, 150)])
def test_a_row_has_the_same_bits_in_every_batch(width, outputs, way):
    """Also beside rows that are not finite; these stay so."""
    quantized = QuantizedLinear(layer_of(width, outputs))
    x = torch.randn(130, width) * torch.logspace(-3, 3, 130)[:, None]
    expected = torch.cat([quantized(row) for row in x.split(1)])
    for rows in ROWS:
        order = torch.randperm(130)[:rows]
        assert torch.equal(quantized(x[order]), expected[order])
        assert torch.equal(quantized(x[order][None])[0], expected[order])
    for number in (float("nan"), float("inf"), -float("inf")):
        x[3, 5] = number
        out = quantized(x)
        assert not out[3].isfinite().any()
        others = torch.arange(130) != 3
        assert torch.equal(out[others], expected[others])


@torch.no_grad()
@pytest.mark.parametrize("rows", ROWS)
def test_the_largest_factors_do_not_overflow(rows, way):
    """As they would in 8 bits each on processors without VNNI; rows of one number stay exact.

    Weights are alike, or two neighbours have the largest sum that is rounded up.
    """
    layer = layer_of(64, 5, bias=False)
    layer.weight.copy_(torch.tensor([1.0, -1.0, 0.0, 1.0, -1.0])[:, None])
    layer.weight[3:] *= torch.tensor([251.0, 3.0]).repeat(32)
    exact = layer.weight.double()
    x = torch.full((rows, 64), 255.0)
    x[:, -1] = 0
    quantized = QuantizedLinear(layer)
    if quantized.for_pairs:
        # 125.5 and 1.5 times a 127th of their sum.
        assert quantized.weight[3, :2].tolist() == [126, 2]
    weight = quantized.weight.double() * quantized.scales.double()[:, None]
    for numbers in (x, torch.full((rows, 64), 5.0)):
        of_integers = numbers.double() @ weight.t()
        torch.testing.assert_close(quantized(numbers).double(), of_integers, rtol=1e-6, atol=1e-6)
        # 63.5 becomes 64.
        expected = numbers.double() @ exact.t()
        torch.testing.assert_close(of_integers, expected, rtol=0.008, atol=1e-6)


@torch.no_grad()
def test_the_kernels_have_the_same_bits(monkeypatch):
    """So a text has them in every batch where a processor uses one for few rows alone."""
    if not hasattr(native.kernels(), "quantized_product"):
        pytest.skip("this processor has no kernel in C for the products")
    layer = QuantizedLinear(layer_of(96, 150))
    x = torch.randn(130, 96)
    in_c = layer(x)
    monkeypatch.setattr(quantized, "multiplies_int8", lambda: True)
    by_onednn = layer(x)
    assert layer.packed is not None
    assert torch.equal(by_onednn, in_c)


@pytest.mark.parametrize("width", [16, 45])
def test_gelu_of_each_number_alone(width):
    x = torch.cat((torch.linspace(-9, 9, 40 * width - 2), torch.tensor([-1e30, 1e30])))
    wide = torch.zeros(40, 2 * width)
    part = wide[:, :width]
    part.copy_(x.view(40, width))
    if not quantized.gelu_in_c(part):
        pytest.skip("this processor has no kernel in C for gelu")
    expected = F.gelu(x.double()).view(40, width)
    # torch's own differs by as much.
    torch.testing.assert_close(part.double(), expected, rtol=1e-6, atol=1e-6)
    assert not wide[:, width:].any()
    again = x.roll(7)[None]
    assert quantized.gelu_in_c(again)
    assert torch.equal(again[0].roll(-7), part.flatten())
    broken = torch.tensor([[float("nan"), 1.0, float("inf")]])
    quantized.gelu_in_c(broken)
    assert broken.isfinite().tolist() == [[False, True, False]]


@pytest.mark.slow
def test_processors_without_vnni():
    """These tests, where oneDNN uses the instructions of such a processor."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    words += ["-k", "factors or bits"]
    environment = {"ONEDNN_MAX_CPU_ISA": "AVX2", "PYTHONPATH": str(ROOT)}
    environment |= {"TUPE_FAIRSEQ_NATIVE": "0"}
    result = subprocess.run(words, env=os.environ | environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


def test_gradients_are_refused():
    """A pass without them is not, although its input needs a gradient."""
    quantized = QuantizedLinear(layer_of())
    out = quantized(torch.randn(3, 96, requires_grad=True))
    with pytest.raises(UsageError, match="layers in int8 have no gradients"):
        out.sum().backward()


@pytest.mark.parametrize("cast", [nn.Module.half, nn.Module.double, nn.Module.bfloat16])
def test_casts_are_refused(cast):
    quantized = QuantizedLinear(layer_of())
    with pytest.raises(UsageError, match="layers in int8 compute in fp32 on CPUs"):
        cast(quantized)
    assert quantized(torch.randn(3, 96, dtype=torch.bfloat16)).dtype == torch.float32


def test_layers_are_sent_to_processes():
    """As by a pool of sentence-transformers, after tensors have moved to shared memory."""
    quantized = QuantizedLinear(layer_of()).share_memory()
    x = torch.randn(3, 96)
    sent = pickle.loads(ForkingPickler.dumps(quantized))
    assert torch.equal(sent(x), quantized(x))
