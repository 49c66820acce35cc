"""Rotations against products of complex numbers in float64, by torch and by the Triton kernel."""

import pytest
import torch
from torch.autograd import forward_ad

from tests.tolerances import assert_close
from tests.triton_interpreter import DEVICE
from tupe_fairseq.kernels.rotation import rotate

HALF = (torch.float16, torch.bfloat16)
#: Tokens, width and rotated dimensions: one token, some dimensions that stay, whole heads.
SIZES = [(1, 8, 8), (5, 12, 6), (61, 64, 64), (130, 80, 32)]
WAYS = pytest.mark.parametrize("halves", [False, True])


def inputs(length, width, rotated, dtype=torch.float64, of_text=False):
    """Vectors as after one projection, 2×3×T×D, and angles, T×(R/2) or 2×1×T×(R/2)."""
    generator = torch.Generator().manual_seed(length)
    x = torch.randn(2, length, 2, 3, width, generator=generator, dtype=torch.float64)
    shape = (2, 1) if of_text else ()
    angles = torch.randn(*shape, length, rotated // 2, generator=generator, dtype=torch.float64)
    return x[:, :, 0].transpose(1, 2).to(dtype), 9 * angles


def by_complex(x, angles, halves, sign=1):
    """The same in float64."""
    width = 2 * angles.size(-1)
    parts = x.double()[..., :width]
    parts = parts.unflatten(-1, (2, -1)).mT if halves else parts.unflatten(-1, (-1, 2))
    turned = torch.view_as_complex(parts.contiguous()) * torch.exp(sign * 1j * angles)
    pairs = torch.view_as_real(turned)
    return torch.cat(((pairs.mT if halves else pairs).flatten(-2), x.double()[..., width:]), -1)


def tables(angles, dtype=torch.float64):
    return angles.cos().to(dtype), angles.sin().to(dtype)


@WAYS
@pytest.mark.parametrize("of_text", [False, True])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
def test_outputs_and_gradients(dtype, size, of_text, halves):
    x, angles = inputs(*size, dtype, of_text)
    x.requires_grad_()
    out = rotate(x, *tables(angles, torch.float32), halves)
    expected = by_complex(x, angles, halves)
    assert out.dtype == dtype
    assert_close(out, expected)
    with torch.no_grad():
        assert torch.equal(rotate(x, *tables(angles, torch.float32), halves), out)
    weights = torch.randn_like(x)
    (found,) = torch.autograd.grad(out, x, weights)
    assert found.dtype == dtype
    assert_close(found, by_complex(weights, angles, halves, sign=-1))


@WAYS
def test_second_derivatives(halves):
    x, angles = inputs(3, 6, 4)
    x = x.requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: rotate(x, *tables(angles), halves) ** 2, x)


@WAYS
def test_learned_angles_keep_their_gradient(halves):
    x, angles = inputs(5, 12, 6)
    angles.requires_grad_()
    found, expected = (
        torch.autograd.grad(out.sin().sum(), angles)[0]
        for out in (rotate(x, *tables(angles), halves), by_complex(x, angles, halves))
    )
    assert_close(found, expected)


@WAYS
def test_transforms(halves):
    """Forward-mode AD, and torch.func."""
    x, angles = inputs(5, 12, 6)
    tangent = torch.randn_like(x)
    with forward_ad.dual_level():
        out = rotate(forward_ad.make_dual(x, tangent), *tables(angles), halves)
        assert_close(forward_ad.unpack_dual(out).tangent, by_complex(tangent, angles, halves))
    of_sum = torch.func.grad(lambda x: rotate(x, *tables(angles), halves).sum())(x)
    assert_close(of_sum, by_complex(torch.ones_like(x), angles, halves, sign=-1))


def test_autocast_changes_nothing():
    x, angles = inputs(5, 12, 6, torch.bfloat16)
    given = tables(angles, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        out = rotate(x, *given)
    assert torch.equal(out, rotate(x, *given))


@pytest.mark.usefixtures("kernels_of_triton")
@WAYS
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("of_text", [False, True])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
def test_the_kernel(dtype, size, of_text, back, halves):
    torch.manual_seed(1)
    x, angles = (each.to(DEVICE) for each in inputs(*size, dtype, of_text))
    cos, sin = tables(angles, torch.float32)
    if of_text:
        # As taken from one table: with the batch after the tokens
        cos, sin = (each.transpose(0, 2).contiguous().transpose(0, 2) for each in (cos, sin))
    x.requires_grad_()
    out = torch.ops.tupe_fairseq.rotate(x, cos, sin, halves, back)
    assert out.transpose(1, 2).is_contiguous()
    # One rounding, after sums in fp32
    exact = by_complex(x, angles, halves, -1 if back else 1)
    eps = torch.finfo(dtype).eps
    assert (out.double() - exact).abs().max() <= exact.abs().max() * eps
    weights = torch.randn_like(x)
    (found,) = torch.autograd.grad(out, x, weights)
    exact = by_complex(weights, angles, halves, 1 if back else -1)
    assert (found.double() - exact).abs().max() <= exact.abs().max() * eps


@pytest.mark.usefixtures("kernels_of_triton")
def test_tables_of_one_text_are_those_of_all():
    x, angles = (each.to(DEVICE) for each in inputs(5, 12, 6, torch.float32))
    cos, sin = tables(angles, torch.float32)
    out = torch.ops.tupe_fairseq.rotate(x, cos[None, None], sin[None, None], True, False)
    assert torch.equal(out, torch.ops.tupe_fairseq.rotate(x, cos, sin, True, False))


@pytest.mark.usefixtures("kernels_of_triton")
def test_the_operator_is_described_as_it_is():
    x, angles = (each.to(DEVICE) for each in inputs(5, 12, 6, torch.float32))
    torch.library.opcheck(
        torch.ops.tupe_fairseq.rotate,
        (x, *tables(angles, torch.float32), False, True),
        test_utils=("test_schema", "test_faketensor"),
    )
