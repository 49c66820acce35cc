"""Products with weights against float64: by torch, by oneDNN and by the kernel in C."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.tolerances import assert_close, assert_gradients_close
from tupe_fairseq.kernels.linear import linear, prefers_onednn, project

#: Inputs, outputs, whether there is a bias: products too small for anything but torch, products of
#: few rows, by the kernel in C if rows are multiples of 16, and products that oneDNN computes.
#: On processors on which torch is as fast, it computes all.
SMALL = [((5, 7), 3, True), ((2, 5, 8), 16, False)]
FEW_ROWS = [
    *[((4, 1024), 70, True), ((3, 3, 512), 60, True), ((17, 48), 330, False)],
    *[((1, 8, 256), 129, True), ((16, 1024), 17, True), ((9, 333), 90, True)],
]
LARGE = [((130, 129), 97, True), ((2, 65, 130), 64, True), ((1030, 17), 61, False)]
LARGE += [((3, 1, 7000), 50, True)]


def inputs(shape, outputs, with_bias, dtype=torch.float32):
    """x, weight and bias, the same numbers for each dtype; outputs are near 1."""
    generator = torch.Generator().manual_seed(1)
    sizes = {"x": shape, "weight": (outputs, shape[-1])}
    if with_bias:
        sizes["bias"] = (outputs,)
    made = {name: torch.randn(*size, generator=generator) for name, size in sizes.items()}
    made["weight"] /= shape[-1] ** 0.5
    found = {name: value.to(dtype).requires_grad_() for name, value in made.items()}
    return found if with_bias else {**found, "bias": None}


def gradients(tensors, out, create_graph=False):
    leaves = {name: value for name, value in tensors.items() if value is not None}
    loss = out.sin().sum()
    found = torch.autograd.grad(loss, tuple(leaves.values()), create_graph=create_graph)
    return dict(zip(leaves, found, strict=True))


@pytest.mark.parametrize("activation", ["none", "gelu"])
@pytest.mark.parametrize(("shape", "outputs", "with_bias"), SMALL + FEW_ROWS + LARGE)
def test_outputs_and_gradients(way, shape, outputs, with_bias, activation):
    ours = inputs(shape, outputs, with_bias)
    exact = inputs(shape, outputs, with_bias, torch.float64)
    expected = F.linear(*exact.values())
    expected = F.gelu(expected) if activation == "gelu" else expected
    out = linear(**ours, activation=activation)
    assert_close(out, expected)
    assert_gradients_close(gradients(ours, out), gradients(exact, expected), torch.float32)
    with torch.no_grad():
        assert_close(linear(**ours, activation=activation), expected)


@pytest.mark.parametrize(("shape", "outputs", "with_bias"), LARGE)
def test_only_gradients_that_are_asked_for(shape, outputs, with_bias):
    frozen = inputs(shape, outputs, True)
    frozen["weight"].requires_grad_(False)
    frozen["bias"].requires_grad_(False)
    linear(**frozen).sum().backward()
    assert_close(frozen["x"].grad, frozen["weight"].detach().sum(0).expand(shape))
    assert frozen["weight"].grad is None


@pytest.mark.parametrize(("shape", "outputs"), [((6, 5), 4), ((130, 129), 97)])
def test_gradients_of_gradients(shape, outputs):
    found = {}
    for dtype in (torch.float32, torch.float64):
        tensors = inputs(shape, outputs, True, dtype)
        first = gradients(tensors, linear(**tensors), create_graph=True)
        sizes = torch.stack([value.square().mean().log() for value in first.values()])
        found[dtype] = gradients(tensors, sizes)
    assert_gradients_close(found[torch.float32], found[torch.float64], torch.float32)


@torch.no_grad()
@pytest.mark.parametrize("shape", [(8, 6, 5), (129, 130, 97), (32, 512, 20)])
def test_strided_inputs(way, shape):
    inner, rows, outputs = shape
    x, weight = torch.randn(inner, rows).t(), torch.randn(inner, outputs).t() / inner**0.5
    assert_close(linear(x, weight, None), x.double() @ weight.double().t())
    apart = torch.randn(rows, 2 * inner)[:, :inner]
    assert_close(linear(apart, weight, None), apart.double() @ weight.double().t())


def test_what_torch_computes_itself():
    """Other dtypes, autocast, transforms of functions, and oneDNN switched off."""
    shape, outputs, _ = LARGE[0]
    tensors = inputs(shape, outputs, True)
    x, weight, _ = tensors.values()
    expected = F.linear(*tensors.values())
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(linear(**tensors), F.linear(*tensors.values()))
        assert linear(**tensors).dtype == torch.bfloat16
    for dtype in (torch.float64, torch.bfloat16):
        others = inputs(shape, outputs, True, dtype)
        assert torch.equal(linear(**others), F.linear(*others.values()))
    of_x = torch.func.grad(lambda x: linear(x, weight, None).sum())(x)
    assert_close(of_x, weight.sum(0).expand(shape))
    with torch.backends.mkldnn.flags(enabled=False):
        assert torch.equal(linear(**tensors), expected)
        with torch.no_grad():
            assert torch.equal(linear(**tensors, activation="gelu"), F.gelu(expected))


def test_replaced_modules_are_called():
    class Noisy(nn.Linear):
        def forward(self, x):
            return super().forward(x) + 1

    x, hooked = torch.randn(5, 7), nn.Linear(7, 3)
    hooked.register_forward_hook(lambda module, args, out: 2 * out)
    noisy = Noisy(7, 3)
    assert torch.equal(project(x, hooked), 2 * F.linear(x, hooked.weight, hooked.bias))
    assert torch.equal(project(x, noisy, "gelu"), F.gelu(noisy(x)))


def test_a_replaced_forward_is_called():
    """accelerate replaces it where it offloads weights."""
    x, replaced = torch.randn(5, 7), nn.Linear(7, 3)
    replaced.forward = lambda x: x[:, :3]
    assert torch.equal(project(x, replaced), x[:, :3])


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("size", ["LARGE", "FEW_ROWS"])
def test_a_bias_in_any_order_of_memory(size, gradients):
    for shape, outputs, _ in globals()[size]:
        tensors = inputs(shape, outputs, True)
        bias = torch.stack((tensors["bias"], -tensors["bias"]), -1)[..., 0]
        with torch.set_grad_enabled(gradients):
            found = linear(tensors["x"], tensors["weight"], bias)
        assert_close(
            found, F.linear(*(tensors[name].double() for name in ("x", "weight", "bias")))
        )


@torch.no_grad()
def test_few_programs_for_many_lengths():
    """oneDNN keeps one for each number of rows, and a server has batches of all sizes."""
    if not prefers_onednn():
        pytest.skip("oneDNN is not used on this processor")
    layer = nn.Linear(64, 128)
    with torch.profiler.profile(record_shapes=True) as profile:
        for rows in range(512, 2048, 7):
            x = torch.randn(rows, 64)
            assert_close(linear(x, layer.weight, layer.bias), layer(x))
    shapes = {str(event.input_shapes) for event in profile.events() if "pointwise" in event.name}
    assert 0 < len(shapes) <= 34
