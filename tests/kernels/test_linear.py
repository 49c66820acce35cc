"""Products by oneDNN against float64, and where torch's own are kept."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.tolerances import assert_close, assert_gradients_close
from tupe_fairseq import build_position_encoding
from tupe_fairseq.kernels import linear as module
from tupe_fairseq.kernels import native
from tupe_fairseq.kernels.linear import linear, prefers_onednn, project
from tupe_fairseq.modules.encoder import Encoder

has_onednn = pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="torch was built without oneDNN"
)
SHAPES = [((5, 7), 3, True), ((2, 5, 8), 16, True), ((33, 64), 17, False), ((3, 1, 40), 9, True)]


@pytest.fixture
def calls(monkeypatch):
    """oneDNN computes products of any size; the list of its results' shapes."""
    found, product = [], module._product

    def counted(*args):
        out = product(*args)
        found.append(tuple(out.shape))
        return out

    monkeypatch.setattr(module, "_product", counted)
    monkeypatch.setattr(module, "prefers_onednn", lambda: True)
    monkeypatch.setattr(module, "SMALLEST", 0)
    monkeypatch.setattr(module, "FEW", 0)
    return found


def inputs(shape, outputs, with_bias, dtype=torch.float32):
    """x, weight and bias, the same numbers for each dtype."""
    generator = torch.Generator().manual_seed(1)
    sizes = {"x": shape, "weight": (outputs, shape[-1])}
    if with_bias:
        sizes["bias"] = (outputs,)
    made = {name: torch.randn(*size, generator=generator) for name, size in sizes.items()}
    found = {name: value.to(dtype).requires_grad_() for name, value in made.items()}
    return found if with_bias else {**found, "bias": None}


def gradients(tensors, out, create_graph=False):
    leaves = {name: value for name, value in tensors.items() if value is not None}
    loss = out.sin().sum()
    found = torch.autograd.grad(loss, tuple(leaves.values()), create_graph=create_graph)
    return dict(zip(leaves, found, strict=True))


@has_onednn
@pytest.mark.parametrize("activation", ["none", "gelu"])
@pytest.mark.parametrize(("shape", "outputs", "with_bias"), SHAPES)
def test_outputs_and_gradients(calls, shape, outputs, with_bias, activation):
    ours = inputs(shape, outputs, with_bias)
    exact = inputs(shape, outputs, with_bias, torch.float64)
    expected = F.linear(**{"input" if k == "x" else k: v for k, v in exact.items()})
    expected = F.gelu(expected) if activation == "gelu" else expected
    out = linear(**ours, activation=activation)
    assert_close(out, expected)
    assert_gradients_close(gradients(ours, out), gradients(exact, expected), torch.float32)
    # The product and the gradients of its two factors
    assert len(calls) == 3
    with torch.no_grad():
        assert_close(linear(**ours, activation=activation), expected)
    assert len(calls) == 4


@has_onednn
def test_only_gradients_that_are_asked_for(calls):
    frozen = inputs((5, 7), 3, True)
    frozen["weight"].requires_grad_(False)
    frozen["bias"].requires_grad_(False)
    linear(**frozen).sum().backward()
    assert len(calls) == 2
    assert frozen["x"].grad is not None
    assert frozen["weight"].grad is None


@has_onednn
def test_gradients_of_gradients(calls):
    found = {}
    for dtype in (torch.float32, torch.float64):
        tensors = inputs((6, 5), 4, True, dtype)
        first = gradients(tensors, linear(**tensors), create_graph=True)
        sums = torch.stack([value.square().sum() for value in first.values()])
        found[dtype] = gradients(tensors, sums)
    assert_gradients_close(found[torch.float32], found[torch.float64], torch.float32)
    assert calls


@has_onednn
def test_strided_inputs(calls):
    x, weight = torch.randn(8, 6).t(), torch.randn(8, 5).t()
    assert_close(linear(x, weight, None), x.double() @ weight.double().t())
    assert calls


def test_what_torch_computes_itself(calls, monkeypatch):
    tensors = inputs((5, 7), 3, True)
    expected = F.linear(tensors["x"], tensors["weight"], tensors["bias"])
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(**tensors).dtype == torch.bfloat16
    linear(**inputs((5, 7), 3, True, torch.float64))
    linear(**{name: value.bfloat16() for name, value in tensors.items()})
    torch.func.jacrev(lambda x: linear(x, tensors["weight"], None))(tensors["x"])
    with torch.backends.mkldnn.flags(enabled=False):
        assert torch.equal(linear(**tensors), expected)
    monkeypatch.setattr(module, "SMALLEST", 5 * 7 * 3 + 1)
    assert torch.equal(linear(**tensors), expected)
    with torch.no_grad():
        assert torch.equal(linear(**tensors, activation="gelu"), F.gelu(expected))
    assert not calls


@pytest.mark.parametrize("activation", ["none", "gelu"])
@pytest.mark.parametrize(
    ("shape", "outputs", "with_bias"),
    [((4, 16), 1, True), ((3, 3, 32), 5, True), ((17, 48), 6, False), ((1, 8, 16), 2, True)],
)
def test_few_rows(monkeypatch, shape, outputs, with_bias, activation):
    """By the kernel in C, where it serves this processor."""
    monkeypatch.setattr(module, "prefers_onednn", lambda: True)
    monkeypatch.setattr(module, "SMALLEST_IN_C", 0)
    tensors = inputs(shape, outputs, with_bias)
    exact = [None if t is None else t.double() for t in tensors.values()]
    expected = F.linear(*exact)
    with torch.no_grad():
        if native.kernels() is not None and torch.backends.cpu.get_cpu_capability() == "AVX512":
            found = module._small_product(*tensors.values())
            assert_close(found, expected)
            strided = torch.cat((tensors["x"], tensors["x"]), -1)[..., : shape[-1]]
            assert module._small_product(strided, *list(tensors.values())[1:]) is None
        out = linear(**tensors, activation=activation)
    assert_close(out, F.gelu(expected) if activation == "gelu" else expected)


def test_replaced_modules_are_called(calls):
    class Noisy(nn.Linear):
        def forward(self, x):
            return super().forward(x) + 1

    x, hooked = torch.randn(5, 7), nn.Linear(7, 3)
    hooked.register_forward_hook(lambda module, args, out: 2 * out)
    noisy = Noisy(7, 3)
    assert torch.equal(project(x, hooked), 2 * F.linear(x, hooked.weight, hooked.bias))
    assert torch.equal(project(x, noisy, "gelu"), F.gelu(noisy(x)))
    assert not calls


def test_processors(monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(module, "_vendor", lambda: "GenuineIntel")
    assert not prefers_onednn.__wrapped__()
    monkeypatch.setattr(module, "_vendor", lambda: "AuthenticAMD")
    assert prefers_onednn.__wrapped__() == hasattr(torch.ops.mkldnn, "_linear_pointwise")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    assert not prefers_onednn.__wrapped__()


@has_onednn
@pytest.mark.parametrize("normalize_before", [False, True])
def test_encoder(calls, monkeypatch, normalize_before):
    """The same parameters before and after training mode, loading and changes of dtype."""
    encoder, other = (
        Encoder(
            build_position_encoding("tupe_r", 16, 2, 256, tie_cls=True),
            *(2, 16),
            dropout=0.0,
            attention_dropout=0.0,
            normalize_before=normalize_before,
        )
        for _ in range(2)
    )
    encoder.eval()
    x, mask = torch.randn(3, 9, 16), torch.arange(9) >= torch.tensor([9, 5, 2])[:, None]

    def check():
        del calls[:]
        with torch.no_grad():
            found, again = encoder(x, mask), encoder(x, mask)
            assert torch.equal(found, again)
            assert len(calls) == 2 * 2 * 4
            exact = encoder.double()(x.double(), mask)
            encoder.float()
        assert_close(found[~mask], exact[~mask])

    check()
    encoder.load_state_dict(other.state_dict())
    check()
    x.requires_grad_()
    encoder.train()(x, mask)[~mask].sum().backward()
    assert x.grad.isfinite().all()
    torch.optim.SGD(encoder.parameters(), 0.1).step()
    encoder.eval()
    check()
