"""Second and forward derivatives are right, or refused in one line; never left out in silence."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from tests.attention.cases import (
    BACKENDS,
    EMBED_DIM,
    ENCODINGS,
    build,
    normal,
    padding_mask,
    run,
    served,
)
from tests.covering import in_turn
from tests.tolerances import assert_close, assert_derivative
from tupe_fairseq import BackendError, UsageError
from tupe_fairseq.kernels.linear import linear

LENGTH = 9
PAIRS = served(BACKENDS, ENCODINGS)
SWITCH = (False, True)


def attention_over(name: str, case: str, packed: bool, dtype: torch.dtype) -> Callable:
    """Attention as a function of its input alone, 2×T×C, with 0 at padding."""
    encoding, attention = build(case, LENGTH, dtype)
    padding = padding_mask(LENGTH, 0, 4)
    encoding.requires_grad_(False)
    attention.requires_grad_(False)

    def out(x: Tensor) -> Tensor:
        found = run(encoding, attention, x, padding, packed, backend=name)
        return found * ~padding[:, :, None]

    return out


def computed(function: Callable[[], Tensor]) -> Tensor | Exception:
    """What the function returns, or the error that says that there is none."""
    try:
        return function()
    except (UsageError, RuntimeError, NotImplementedError) as error:
        return error


def gradient(function: Callable, x: Tensor, **how) -> Tensor:
    """Of the sum of the output, so that the outer gradient is a constant."""
    return torch.autograd.grad(function(x).sum(), x, **how)[0]


@pytest.mark.parametrize(("pair", "packed"), in_turn(PAIRS, SWITCH), ids=str)
def test_second_derivatives(pair, packed):
    name, case = pair
    function = attention_over(name, case, packed, torch.float64)
    x, v = (normal(2, LENGTH, EMBED_DIM, seed=seed, dtype=torch.float64) for seed in (0, 1))
    point = x.clone().requires_grad_()
    first = gradient(function, point, create_graph=True)
    found = computed(lambda: gradient(lambda x: first * v, point))
    if isinstance(found, Tensor):
        assert_derivative(lambda step: gradient(function, (x + step * v).requires_grad_()), found)
    else:
        assert "\n" not in str(found)
        assert name != "eager"
        assert name != "blocked" or isinstance(found, BackendError)


@pytest.mark.parametrize(("pair", "packed", "learns"), in_turn(PAIRS, SWITCH, SWITCH), ids=str)
def test_forward_derivatives(pair, packed, learns):
    """In fp32, for which there are kernels in C."""
    name, case = pair
    x, v = (normal(2, LENGTH, EMBED_DIM, seed=seed) for seed in (0, 1))
    exact = attention_over("eager", case, packed, torch.float64)
    function = attention_over(name, case, packed, torch.float32)
    with torch.set_grad_enabled(learns), forward_ad.dual_level():
        out = computed(lambda: function(forward_ad.make_dual(x, v)))
        if isinstance(out, Tensor):
            found = forward_ad.unpack_dual(out).tangent
            assert_derivative(lambda step: exact(x.double() + step * v.double()), found)
        else:
            assert name != "eager" or packed


@pytest.mark.parametrize("shape", [(3, 3, 512), (130, 512)], ids=str)
@torch.no_grad()
def test_forward_derivatives_of_products(shape):
    """Few rows, by the kernel in C, and many."""
    x = normal(*shape, seed=0)
    weight = normal(64, 512, seed=1) / 512**0.5
    with forward_ad.dual_level():
        out = computed(lambda: linear(forward_ad.make_dual(x, x), weight, None))
        if isinstance(out, Tensor):
            assert_close(forward_ad.unpack_dual(out).tangent, x @ weight.t())
