"""Products with weights: torch's own, or oneDNN's where that is faster.

torch computes fp32 products on x86 processors by MKL, which uses AVX-512 on Intel's alone. On
other processors with AVX-512, oneDNN, which is a part of torch, is faster. Both copy the weight
into blocks first. For few rows this takes longer than the product, so a kernel in C (AVX-512 or
AVX2) reads the weight as it is stored. All round in fp32; they differ in the order of summation.
"""

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..machine import fact_of_processor
from . import native

#: Multiplications below which the fixed cost of oneDNN's call, about 12 µs, outweighs its gain.
LEAST_WORK = 1 << 20
#: The same for the kernel in C, about 3 µs.
LEAST_WORK_IN_C = 1 << 18
#: Numbers in the inputs, and without AVX-512 their rows, up to which the kernel in C is faster.
FEW_INPUTS, FEW_ROWS = 1 << 14, 32
#: Rows from which one product with joined weights is faster than three, where torch computes them.
JOINING_ROWS = 512
#: The kernel computes 4 or 8 rows at a time of 16 numbers.
FEWEST_ROWS, LANES = 4, 16


def project(x: Tensor, module: nn.Module, activation: str = "none") -> Tensor:
    """``module(x)`` and the activation, "none" or "gelu": B×T×I -> B×T×O, or N×I -> N×O.

    The module is nn.Linear, or what replaces it, e.g. with noise, adapters or quantised weights.
    """
    if isinstance(module, nn.Linear) and is_plain(module):
        return linear(x, module.weight, module.bias, activation)
    return F.gelu(module(x)) if activation == "gelu" else module(x)


def is_plain(module: nn.Module, kind: type[nn.Module] = nn.Linear) -> bool:
    """Whether the module is of this class itself, has no hooks, and its forward is its own.

    Quantisation noise is a hook; accelerate replaces ``forward`` where it offloads weights.
    """
    if type(module) is not kind or "forward" in module.__dict__:
        return False
    hooks = module._forward_pre_hooks or module._forward_hooks
    return not (hooks or module._backward_pre_hooks or module._backward_hooks)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str = "none") -> Tensor:
    """activation(x weightᵀ + bias), with "none" or "gelu": B×T×I -> B×T×O, or N×I -> N×O.

    The weight is O×I, the bias O.
    """
    if not _is_served(x, weight, bias):
        out = F.linear(x, weight, bias)
    elif _needs_gradient(x, weight, bias):
        out = _Linear.apply(x, weight, bias)
    else:
        small = _small_product(x, weight, bias)
        if small is None and prefers_onednn():
            return _product_of_some_rows(x, weight, bias, activation)
        out = F.linear(x, weight, bias) if small is None else small
    if activation == "none":
        return out
    # In place: allocating a tensor of this size costs as much as gelu.
    return F.gelu(out) if torch.is_grad_enabled() else torch.ops.aten.gelu_(out)


def is_small(x: Tensor) -> bool:
    """Whether the time is that of reading weights: few inputs, without gradients."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    few = FEW_INPUTS if prefers_onednn() else FEW_ROWS * x.size(-1)
    return x.numel() <= few and bool(_instructions()) and native.kernels() is not None


def joins_weights(x: Tensor) -> bool:
    """Whether the product with weights that are joined for it is faster than one with each."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or _instructions() != "AVX2":
        return True
    return x.numel() >= JOINING_ROWS * x.size(-1)


@functools.cache
def prefers_onednn() -> bool:
    """Whether oneDNN is faster than what torch calls here, by what is known of the processor."""
    return _instructions() == "AVX512" and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@functools.cache
def _instructions() -> str:
    """AVX512 or AVX2 where the kernel in C serves the processor; on Intel's it is not measured."""
    # Linux on x86 names the manufacturer; elsewhere it counts as Intel.
    is_intel = (fact_of_processor("vendor_id") or "GenuineIntel") == "GenuineIntel"
    found = torch.backends.cpu.get_cpu_capability()
    return found if found in ("AVX512", "AVX2") and not is_intel else ""


def _is_served(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether not torch is to compute it; graphs of torch.compile and torch.export keep F.linear.

    Written out: of a short text, such checks take a notable share of the time.
    """
    if torch.compiler.is_compiling():
        return False
    small = is_small(x)
    if not (small or prefers_onednn()):
        return False
    if x.numel() * weight.size(0) < (LEAST_WORK_IN_C if small else LEAST_WORK):
        return False
    return (
        x.dtype == weight.dtype == torch.float32
        and (x.is_cpu and weight.is_cpu)
        and (type(x) in native.PLAIN and type(weight) in native.PLAIN)
        # Of a bias, oneDNN ignores the stride.
        and (bias is None or (bias.dtype == x.dtype and bias.is_cpu and bias.is_contiguous()))
        and (bias is None or type(bias) in native.PLAIN)
        and not torch._C._are_functorch_transforms_active()
        and not torch.is_autocast_enabled("cpu")
        and torch._C._get_mkldnn_enabled()
        and not torch.jit.is_tracing()
    )


def _needs_gradient(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def _small_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """The product by the kernel in C, or None where it is slower or cannot compute it."""
    outputs, width = weight.shape
    fits = FEWEST_ROWS * width <= x.numel() and is_small(x) and width % LANES == 0
    kernels = native.kernels() if fits and x.is_contiguous() and weight.is_contiguous() else None
    if kernels is None or (bias is not None and not bias.is_contiguous()):
        return None
    out = x.new_empty(*x.shape[:-1], outputs)
    served = kernels.small_linear(
        native.pointer(out, *x.shape[:-1], outputs),
        native.pointer(x, *x.shape[:-1], width),
        native.pointer(weight, outputs, width),
        None if bias is None else native.pointer(bias, outputs),
        *(x.numel() // width, width, outputs),
    )
    return out if served else None


def _product_of_some_rows(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: str
) -> Tensor:
    """`_product` for a number of rows of which few exist: up to 1/16 are added and left out.

    oneDNN keeps a program of about 400 kB for each number of rows, which a server has many of.
    """
    rows = x.numel() // x.size(-1)
    added = -rows % (1 << max(0, rows.bit_length() - 5))
    if not added:
        return _product(x, weight, bias, activation)
    padded = F.pad(x.flatten(0, -2), (0, 0, 0, added))
    return _product(padded, weight, bias, activation)[:rows].view(*x.shape[:-1], -1)


def _product(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none"
) -> Tensor:
    algorithm = "none" if activation == "gelu" else ""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, activation, [], algorithm)


class _Linear(torch.autograd.Function):
    """x weightᵀ + bias; the gradients are differentiable too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad_x = linear(gradient, weight.t(), None) if ctx.needs_input_grad[0] else None
        # B×T×O -> N×O
        gradient, x = gradient.flatten(0, -2), x.flatten(0, -2)
        grad_weight = _weight_gradient(gradient, x) if ctx.needs_input_grad[1] else None
        return grad_x, grad_weight, gradient.sum(0) if ctx.needs_input_grad[2] else None


def _weight_gradient(gradient: Tensor, x: Tensor) -> Tensor:
    """gradientᵀ x: N×O, N×I -> O×I; the first factor is transposed in memory, so the smaller."""
    if gradient.size(1) <= x.size(1):
        return linear(gradient.t(), x.t(), None)
    return linear(x.t(), gradient.t(), None).t()
