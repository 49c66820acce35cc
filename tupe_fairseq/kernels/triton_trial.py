"""Whether the Triton kernels can be used here: tried once, with a few tokens."""

import functools
import importlib.util
import os

import torch
from torch import Tensor

from .triton_attention import attention

#: Tokens of the sequences that are tried, heads and the width of their vectors.
LENGTHS = (64, 35)
HEADS = 2
WIDTH = 64
#: Largest error in fp16, in units of the largest entry. A correct kernel stays below 0.005.
TOLERANCE = 0.02


@torch.compiler.assume_constant_result
def unavailable(device: str) -> str | None:
    """Why the kernels cannot run on this type of device, or None."""
    if device == "meta":
        # Nothing is computed there.
        return None
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if device == "cuda":
        if not torch.cuda.is_available():
            return "there is no GPU"
        if torch.cuda.get_device_capability() < (8, 0):
            return "the GPU has no compute capability 8.0"
        return fault(device)
    if device == "cpu" and os.environ.get("TRITON_INTERPRET") == "1":
        return None
    return f"its kernels do not run on {device!r}"


@functools.cache
def fault(device: str) -> str | None:
    """What goes wrong in attention under a bias and its gradients, or None.

    Triton compiles kernels when they first run, which may need a C compiler and fails in different
    ways. Wrong numbers would cost more than an error.
    """
    try:
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autocast(device, enabled=False),
        ):
            error = _largest_error(device)
    # All that compilers, linkers and drivers raise; the message may have several lines.
    except Exception as error_raised:
        lines = str(error_raised).strip().splitlines() or [type(error_raised).__name__]
        return f"its kernels do not run here ({lines[0]})"
    if error <= TOLERANCE:
        return None
    return f"its kernels give wrong numbers here (error {error:.3g} of the largest)"


def _largest_error(device: str) -> float:
    """Of output and gradients, relative to torch's operations in fp32."""
    generator = torch.Generator().manual_seed(0)
    rows = sum(LENGTHS)
    longest = max(LENGTHS)
    vectors = torch.randn(4, rows, HEADS, WIDTH, generator=generator)
    bias = torch.randn(HEADS, longest, longest, generator=generator)
    *given, weights = (x.to(device, torch.float16) for x in (bias, *vectors))
    ends = torch.tensor(LENGTHS, device=device).cumsum(0)
    starts = ends - torch.tensor(LENGTHS, device=device)
    exact = [x.float().requires_grad_() for x in given]
    given = [x.requires_grad_() for x in given]
    expected = _by_torch(*exact)
    dense, q, k, v = given
    out = attention(q, k, v, starts, ends, longest, dense, scale=WIDTH**-0.5, padded=False)
    found = [out, *torch.autograd.grad(out, given, weights)]
    wanted = [expected, *torch.autograd.grad(expected, exact, weights.float())]
    pairs = zip(found, wanted, strict=True)
    # torch's maximum keeps NaN, which is no error below any limit.
    errors = torch.stack([(x - y).abs().max() / y.abs().max() for x, y in pairs])
    return float(errors.max())


def _by_torch(bias: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """N×H×D."""
    outputs = []
    for of_q, of_k, of_v in zip(*(x.split(LENGTHS) for x in (q, k, v)), strict=True):
        count = len(of_q)
        scores = torch.einsum("ihd,jhd->hij", of_q, of_k) * WIDTH**-0.5
        weights = (scores + bias[:, :count, :count]).softmax(-1)
        outputs.append(torch.einsum("hij,jhd->ihd", weights, of_v))
    return torch.cat(outputs)
