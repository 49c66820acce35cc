"""How far two ways of computing one quantity may lie apart, by dtype.

An error is measured against the largest entry of what is expected. For a gradient that is the
largest entry in the same module, since the bias of the keys has a gradient of zero in exact
arithmetic (softmax is shift-invariant), and only rounding in a computed one.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

#: Outputs, scores and attention weights.
FORWARD = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.float16: 5e-3,
    torch.bfloat16: 4e-2,
}

#: Gradients pass every rounding twice, and those of parameters sum over all positions.
GRADIENT = {
    torch.float64: 1e-11,
    torch.float32: 2e-5,
    torch.float16: 1.25e-2,
    torch.bfloat16: 1e-1,
}

#: Parameters after a few updates by two ways of computing the same gradients.
TRAINED = {torch.float32: 1e-4}

#: Half precision against fp32: norm of the error over that of what is expected, for an output and
#: for the gradients of a module.
HALVED = {torch.float16: (1e-2, 2e-2), torch.bfloat16: (8e-2, 2.5e-1)}

#: Validation losses after a few updates in half precision and in fp32.
LOSSES = 2e-2

#: Standard errors between a mean over random rows and its expectation.
STANDARD_ERRORS = 6
#: Slopes by differences in fp32, relative to the slope.
SLOPE = 2e-2
STEP = 1e-2
#: Derivatives by differences in fp64, with so small a step, of those computed in each dtype.
DERIVATIVE = {torch.float64: 1e-6, torch.float32: 1e-4}
SMALL_STEP = 1e-5


def assert_trained_alike(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Compare all parameters of two models after training."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        found = error(actual[name], value, largest(value))
        assert found <= TRAINED[value.dtype], f"{name} is off by {found:.1e}"


def assert_close(actual: Tensor, expected: Tensor, dtype: torch.dtype | None = None) -> None:
    """Compare outputs by the entry for dtype, which is that of `actual` where not told."""
    found = error(actual, expected, largest(expected))
    assert found <= FORWARD[dtype or actual.dtype], f"off by {found:.1e} of the largest entry"


def assert_halved(
    found: Tensor,
    expected: Tensor,
    of_found: Mapping[str, Tensor],
    of_expected: Mapping[str, Tensor],
) -> None:
    """Compare outputs, and gradients by name, in half precision with those in fp32."""
    of_output, of_gradients = HALVED[found.dtype]
    off = distance([found], [expected])
    assert off <= of_output, f"the output is off by {off:.1e}"
    for module in {name.partition(".")[0] for name in of_expected}:
        names = [name for name in of_expected if name.partition(".")[0] == module]
        off = distance([of_found[n] for n in names], [of_expected[n] for n in names])
        assert off <= of_gradients, f"gradients of {module} are off by {off:.1e}"


def distance(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Norm of the differences over that of what is expected; not finite for what is not."""
    pairs = list(zip(found, expected, strict=True))
    off = sum((a.double() - b.double()).square().sum().item() for a, b in pairs)
    size = sum(b.double().square().sum().item() for _, b in pairs)
    return (off / size) ** 0.5 if size else off**0.5


def assert_losses_close(found: float, expected: float) -> None:
    """Compare losses of two trainings."""
    assert abs(found - expected) <= LOSSES * expected, f"{found} is not {expected}"


def assert_sampled(rows: Tensor, expected: Tensor) -> None:
    """Compare the mean of random rows, B×..., with its expectation, 1×..."""
    rows = rows.double()
    deviation = rows.std(0, keepdim=True)
    assert deviation.max() > 0, "nothing is random"
    allowed = STANDARD_ERRORS * deviation / len(rows) ** 0.5 + FORWARD[expected.dtype]
    off = (rows.mean(0, keepdim=True) - expected.double()).abs() / allowed
    assert off.max() <= 1, f"off by {off.max():.1f} times what is allowed"


def assert_slope(loss: Callable[[float], float], expected: float) -> None:
    """Compare the slope of a function at 0, by central differences, with a computed one."""
    found = (loss(STEP) - loss(-STEP)) / (2 * STEP)
    assert abs(found - expected) <= SLOPE * max(abs(expected), 1), f"{found} is not {expected}"


def assert_derivative(function: Callable[[float], Tensor], expected: Tensor) -> None:
    """Compare the derivative of a function at 0, by central differences in fp64."""
    found = (function(SMALL_STEP) - function(-SMALL_STEP)) / (2 * SMALL_STEP)
    off = error(found, expected, largest(expected))
    assert off <= DERIVATIVE[expected.dtype], f"off by {off:.1e} of the largest entry"


def assert_zero(actual: Tensor) -> None:
    assert_close(actual, torch.zeros_like(actual))


def assert_not_zero(actual: Tensor) -> None:
    """More than rounding leaves behind."""
    assert largest(actual) > FORWARD[actual.dtype]


def assert_gradients_close(
    actual: dict[str, Tensor], expected: dict[str, Tensor], dtype: torch.dtype
) -> None:
    """Compare gradients by name."""
    assert actual.keys() == expected.keys()
    scales: dict[str, float] = {}
    for name, gradient in expected.items():
        module = name.rpartition(".")[0]
        scales[module] = max(scales.get(module, 0), largest(gradient))
    for name, gradient in actual.items():
        found = error(gradient, expected[name], scales[name.rpartition(".")[0]])
        assert found <= GRADIENT[dtype], f"gradient of {name} is off by {found:.1e}"


def error(actual: Tensor, expected: Tensor, scale: float) -> float:
    """Largest difference in units of scale, which counts as at least 1."""
    assert actual.shape == expected.shape
    assert actual.isfinite().all(), "not finite"
    return largest(actual.double() - expected.double()) / max(scale, 1)


def largest(x: Tensor) -> float:
    return x.detach().abs().max().item() if x.numel() else 0.0
