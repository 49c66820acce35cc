"""Products with weights against float64: by torch, by oneDNN and by the kernel in C."""

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.overrides import TorchFunctionMode

from tests.kernels.arbitrary import SIZES, examples, same_or_refused, tensors
from tests.tolerances import assert_close, assert_gradients_close
from tupe_fairseq.kernels.linear import (
    PackedLinear,
    linear,
    prefers_onednn,
    project,
    project_jointly,
)

#: Inputs, outputs, whether there is a bias: products too small for anything but torch, products of
#: few rows, by the kernel in C if these are multiples of 16, and products that oneDNN computes.
#: On Intel's processors, torch computes all but those with the widest weights.
SMALL = [((5, 7), 3, True), ((2, 5, 8), 16, False)]
FEW_ROWS = [
    ((1, 1024), 300, True),
    ((3, 3, 512), 60, True),
    ((16, 48), 350, False),
    ((1, 8, 256), 129, True),
    ((16, 1024), 17, True),
    ((9, 333), 90, True),
    ((5, 1024), 1040, True),
    ((2, 7, 1040), 1025, False),
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
    made = {name: value.to(dtype).requires_grad_() for name, value in made.items()}
    return {"bias": None} | made


def gradients(tensors, out, create_graph=False):
    leaves = {name: value for name, value in tensors.items() if value is not None}
    loss = out.sin().sum()
    values = torch.autograd.grad(loss, tuple(leaves.values()), create_graph=create_graph)
    return dict(zip(leaves, values, strict=True))


@pytest.mark.parametrize(("shape", "outputs", "with_bias"), SMALL + FEW_ROWS + LARGE)
def test_outputs_and_gradients(way, shape, outputs, with_bias):
    ours = inputs(shape, outputs, with_bias)
    exact = inputs(shape, outputs, with_bias, torch.float64)
    expected = F.linear(**{("input" if n == "x" else n): each for n, each in exact.items()})
    out = linear(**ours)
    assert_close(out, expected)
    assert_gradients_close(gradients(ours, out), gradients(exact, expected), torch.float32)
    with torch.no_grad():
        assert_close(linear(**ours), expected)


@examples
@given(st.data(), st.booleans())
def test_anything_is_computed_or_refused(data, learns):
    rows, inputs, outputs = (data.draw(SIZES) for _ in range(3))
    shapes = (rows, 16 * inputs), (64 * outputs, 16 * inputs), (64 * outputs,)
    x, weight = (data.draw(tensors(*shape)) for shape in shapes[:2])
    bias = data.draw(st.none() | tensors(*shapes[2]))

    def compute():
        with torch.set_grad_enabled(learns):
            return linear(x, weight, bias)

    exact = (t if t is None else t.double() for t in (x, weight, bias))
    pairs = zip((x, weight, bias), shapes, strict=True)
    same_or_refused(compute, lambda: F.linear(*exact), *pairs)


def test_only_gradients_that_are_asked_for():
    for shape, outputs, _ in LARGE:
        frozen = inputs(shape, outputs, True)
        frozen["weight"].requires_grad_(False)
        frozen["bias"].requires_grad_(False)
        linear(**frozen).sum().backward()
        assert_close(frozen["x"].grad, frozen["weight"].sum(0).expand(shape))
        assert frozen["weight"].grad is None


@pytest.mark.parametrize(("shape", "outputs"), [((6, 5), 4), ((130, 129), 97)])
def test_gradients_of_gradients(shape, outputs):
    second = {}
    for dtype in (torch.float32, torch.float64):
        tensors = inputs(shape, outputs, True, dtype)
        first = gradients(tensors, linear(**tensors), create_graph=True)
        sizes = torch.stack([value.square().mean().log() for value in first.values()])
        second[dtype] = gradients(tensors, sizes)
    assert_gradients_close(second[torch.float32], second[torch.float64], torch.float32)


def test_what_torch_computes_itself():
    """Other dtypes, autocast, transforms of functions, and oneDNN switched off."""
    shape, outputs, _ = LARGE[0]
    tensors = inputs(shape, outputs, True)
    x, weight, bias = (tensors[name] for name in ("x", "weight", "bias"))
    expected = F.linear(x, weight, bias)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(linear(x, weight, bias), F.linear(x, weight, bias))
        assert linear(x, weight, bias).dtype == torch.bfloat16
    for dtype in (torch.float64, torch.bfloat16):
        others = [each.to(dtype) for each in (x, weight, bias)]
        assert torch.equal(linear(*others), F.linear(*others))
    of_x = torch.func.grad(lambda x: linear(x, weight, None).sum())(x)
    assert_close(of_x, weight.sum(0).expand(shape))
    with torch.backends.mkldnn.flags(enabled=False):
        assert torch.equal(linear(x, weight, bias), expected)


class Noisy(nn.Linear):
    def forward(self, x):
        return super().forward(x) + 1


def with_hook(layer):
    layer.register_forward_hook(lambda module, args, out: out + 1)
    return layer


def with_other_forward(layer):
    """As accelerate makes where it offloads weights."""
    layer.forward = lambda x: F.linear(x, layer.weight, layer.bias) + 1
    return layer


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("change", [with_hook, with_other_forward, lambda _: Noisy(7, 3)])
def test_changed_modules_are_called(change, learns):
    x = torch.randn(5, 7)
    layer = nn.Linear(7, 3)
    assert_close(project(x, layer), F.linear(x, layer.weight, layer.bias))
    with torch.set_grad_enabled(learns):
        of_layer = project(x, layer, gelu=True)
    assert_close(of_layer, F.gelu(F.linear(x, layer.weight, layer.bias)))
    layer = change(layer)
    expected = F.linear(x, layer.weight, layer.bias) + 1
    assert_close(project(x, layer), expected)
    with torch.set_grad_enabled(learns):
        assert_close(project(x, layer, gelu=True), F.gelu(expected))


class Products(TorchFunctionMode):
    """Counts products."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.count += func is F.linear
        return func(*args, **(kwargs or {}))


def frozen(layer):
    return layer.requires_grad_(False)


def unlike(layer):
    """Without a bias, which the others have."""
    return nn.Linear(layer.in_features, layer.out_features, bias=False)


def of_subclass(layer):
    """As libraries of quantisation make, whose tensors cannot be joined."""
    layer.weight = nn.Parameter(layer.weight.detach().as_subclass(OfLibrary))
    return layer


class OfLibrary(torch.Tensor):
    pass


@pytest.mark.parametrize(
    ("change", "products"),
    [
        *((each, 1) for each in (lambda each: each, lambda each: each.double(), frozen)),
        *((each, 3) for each in (with_hook, with_other_forward, unlike, of_subclass)),
        (lambda _: Noisy(7, 6), 3),
    ],
)
@pytest.mark.parametrize("bias", [True, False])
def test_several_layers_by_one_product(change, products, bias):
    """Where all are plain; outputs and gradients are those of the layers."""
    torch.manual_seed(1)
    layers = nn.ModuleList(nn.Linear(7, width, bias) for width in (6, 6, 4))
    layers[1] = change(layers[1])
    products = 1 if not bias and change is unlike else products
    dtype = layers[1].weight.dtype
    layers.to(dtype)
    x = torch.randn(2, 5, 7, dtype=dtype, requires_grad=True)
    trained = {name: each for name, each in layers.named_parameters() if each.requires_grad}
    expected = [layer(x) for layer in layers]
    of_expected = gradients(trained | {"x": x}, torch.cat(expected, -1))
    with Products() as counted:
        found = project_jointly(x, layers)
    assert counted.count == products
    for ours, theirs in zip(found, expected, strict=True):
        assert_close(ours, theirs)
    assert_gradients_close(gradients(trained | {"x": x}, torch.cat(found, -1)), of_expected, dtype)
    with torch.no_grad(), Products() as counted:
        project_jointly(x, layers)
    assert counted.count == 3


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


@pytest.mark.parametrize("rows", [(1,), (3, 5), (700,)])
@pytest.mark.parametrize("bias", [True, False])
def test_packed_weights(rows, bias):
    """By oneDNN, products of bf16 numbers are summed in fp32 and rounded once; else as in torch.

    Where the processor has no instructions for bf16, torch also rounds before it adds the bias.
    """
    torch.manual_seed(1)
    layer = nn.Linear(96, 64, bias).to(torch.bfloat16)
    packed = PackedLinear(layer)
    x = torch.randn(*rows, 96, dtype=torch.bfloat16)
    is_native = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    with torch.no_grad():
        expected = F.linear(x.double(), layer.weight.double(), None)
        expected = expected + layer.bias.double() if bias else expected
        # In this order, because the last changes the layer itself.
        for change in (lambda same: same, copy.deepcopy, lambda same: same.to(torch.float32)):
            each = change(packed)
            dtype = each.weight.dtype
            for after, gelu in ((expected, False), (F.gelu(expected), True)):
                out = each(x.to(dtype), gelu)
                if dtype == torch.bfloat16 and not is_native:
                    theirs = layer(x)
                    assert torch.equal(out, F.gelu(theirs) if gelu else theirs)
                else:
                    torch.testing.assert_close(out.double(), after, rtol=2**-8, atol=2**-8)
