"""How far two ways of computing one quantity may lie apart, by dtype: the only such numbers here.

An error is measured against the largest entry of what is expected. For a gradient that is the
largest entry in the same module, since the bias of the keys has a gradient of zero in exact
arithmetic (softmax is shift-invariant), and only rounding in a computed one.
"""

import torch
from torch import Tensor

#: Outputs, scores and attention weights.
FORWARD = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.float16: 5e-3,
    torch.bfloat16: 4e-2,
}
#: Differences of running sums up to 1,000 that are split into half-precision parts; not relative.
SPLIT_SUMS = 2e-4

#: Gradients pass every rounding twice, and those of parameters sum over all positions.
GRADIENT = {
    torch.float64: 1e-11,
    torch.float32: 2e-5,
    torch.float16: 1.25e-2,
    torch.bfloat16: 1e-1,
}

#: Parameters after a few updates by two ways of computing the same gradients.
TRAINED = {torch.float32: 1e-4}


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
