"""Products with weights: torch's own, or oneDNN's where that is faster.

torch computes fp32 products on x86 processors by MKL, which uses AVX-512 only on Intel's. On
other processors with AVX-512, oneDNN, which is a part of torch, is faster. Both copy the weight
into blocks first. For few rows this takes longer than the product, so a kernel in C reads the
weight as it is stored. On Intel's processors, MKL is as fast as these, apart from products of 4 to
64 rows with wide weights. All round in fp32; they differ in the order of summation.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad

from ..base.machine import fact_of_processor
from . import native

#: Multiplications below which the fixed cost of oneDNN's call, about 12 µs, outweighs its gain.
LEAST_WORK = 1 << 20
#: The same for the kernel in C, about 3 µs.
LEAST_WORK_IN_C = 1 << 18
#: Rows up to which the kernel in C is faster; it reads 16 numbers of each at a time.
FEW_ROWS = {"AVX512": 16, "AVX2": 32}
LINE = 16
#: Where MKL uses AVX-512: numbers of a weight from which it is slower, for rows from LEAST_ROWS to
#: SOME_ROWS; and rows up to which the kernel in C is faster then.
WIDE = 1 << 20
LEAST_ROWS = 4
SOME_ROWS = 64
FEW_ROWS_WITH_MKL = 8
#: Activation, its arguments and its algorithm; gelu's algorithm "none" is the exact one.
NO_ACTIVATION: tuple[str, list[Any], str] = ("none", [], "")
GELU: tuple[str, list[Any], str] = ("gelu", [], "none")


def project(x: Tensor, module: nn.Module, gelu: bool = False) -> Tensor:
    """``module(x)``, and gelu of it if asked for: B×T×I -> B×T×O, or N×I -> N×O.

    A function, because torch quantizes modules whose class is nn.Linear itself, and no subclass.
    What replaces such a module, or changes its output, is called: quantisation noise is a hook,
    and accelerate replaces ``forward`` where it offloads weights.
    """
    # `_is_plain` written out: six calls in each layer are a notable share of a short text's time.
    if (
        type(module) is nn.Linear
        and "forward" not in module.__dict__
        and not (module._forward_pre_hooks or module._forward_hooks)
        and not (module._backward_pre_hooks or module._backward_hooks)
    ):
        out = linear(x, module.weight, module.bias)
        if gelu and not torch.is_grad_enabled():
            # In place: allocating a tensor of this size costs as much as gelu.
            return torch.ops.aten.gelu_(out)
    else:
        out = module(x)
    return F.gelu(out) if gelu else out


def project_jointly(x: Tensor, modules: Sequence[nn.Module]) -> Sequence[Tensor]:
    """``[module(x) for module in modules]``: B×T×O or N×O each, in memory perhaps side by side.

    For GPUs. In training, plain linear layers are one product with their joined weights, so that
    their input has one gradient and not several to be added. Joining copies the weights, which
    are small beside the activations of a batch.
    """
    layers: list[Any] = list(modules)
    joins = (
        torch.is_grad_enabled()
        and all(_is_plain(each) and type(each.weight) in native.PLAIN for each in layers)
        and len({each.bias is None for each in layers}) == 1
    )
    if not joins:
        return [project(x, each) for each in layers]
    bias = None if layers[0].bias is None else torch.cat([each.bias for each in layers])
    out = F.linear(x, torch.cat([each.weight for each in layers]), bias)
    return out.split([each.out_features for each in layers], -1)


def _is_plain(module: nn.Module) -> bool:
    """Whether it is nn.Linear, and nothing sees or changes its inputs and outputs."""
    return (
        type(module) is nn.Linear
        and "forward" not in module.__dict__
        and not (module._forward_pre_hooks or module._forward_hooks)
        and not (module._backward_pre_hooks or module._backward_hooks)
    )


class PackedLinear(nn.Module):
    """A linear layer in bf16 with constant weights, whose blocks oneDNN makes once.

    Of few rows, making them takes a third of the time.
    """

    weight: Tensor
    bias: Tensor | None
    #: The weight in blocks; None before the first call, and in copies and pickled files.
    packed: Tensor | None = None

    def __init__(self, layer: nn.Linear):
        super().__init__()
        self.register_buffer("weight", layer.weight.detach())
        self.register_buffer("bias", None if layer.bias is None else layer.bias.detach())

    def forward(self, x: Tensor, gelu: bool = False) -> Tensor:
        """The product, and gelu of it if asked for: B×T×I -> B×T×O, or N×I -> N×O."""
        if torch.compiler.is_compiling() or not _packs(x):
            out = F.linear(x, self.weight, self.bias)
            return F.gelu(out) if gelu else out
        if self.packed is None:
            self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight, None)
        activation = GELU if gelu else NO_ACTIVATION
        pointwise = torch.ops.mkldnn._linear_pointwise
        return of_some_rows(x, pointwise, self.packed, self.bias, *activation)

    def extra_repr(self) -> str:
        return f"{self.weight.size(1)}, {self.weight.size(0)}, for inference"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "packed"}

    def _apply(self, *args: Any, **kwargs: Any) -> "PackedLinear":
        self.packed = None
        return super()._apply(*args, **kwargs)


def _packs(x: Tensor) -> bool:
    """Whether oneDNN computes products of this tensor with weights in blocks."""
    return (
        x.dtype == torch.bfloat16
        and x.is_cpu
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and torch.ops.mkldnn._is_mkldnn_bf16_supported()
        and not torch.is_grad_enabled()
    )


class Faster(NamedTuple):
    """Where torch is not the fastest on this processor.

    Attributes:
        onednn: whether oneDNN is faster than torch's default.
        few_rows: rows up to which the kernel in C is faster without gradients.
        with_mkl: whether both are so only without gradients, for some rows of wide weights.
    """

    onednn: bool
    few_rows: int
    with_mkl: bool = False


@functools.cache
def faster_products() -> Faster | None:
    """What is faster than torch here, decided once for the process; None: nothing is."""
    instructions = torch.backends.cpu.get_cpu_capability()
    if instructions not in FEW_ROWS:
        return None
    onednn = instructions == "AVX512" and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    # Linux on x86 names the manufacturer; elsewhere it counts as Intel.
    if (fact_of_processor("vendor_id") or "GenuineIntel") == "GenuineIntel":
        return Faster(True, FEW_ROWS_WITH_MKL, with_mkl=True) if onednn else None
    return Faster(onednn, FEW_ROWS[instructions])


def prefers_onednn() -> bool:
    """Whether oneDNN is faster than torch's default on this processor, for all sizes."""
    faster = faster_products()
    return faster is not None and faster.onednn and not faster.with_mkl


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """X weightᵀ + bias: B×T×I -> B×T×O, or N×I -> N×O; the weight is O×I, the bias O.

    Graphs of torch.compile and torch.export keep F.linear.
    """
    faster = None if torch.compiler.is_compiling() else faster_products()
    if faster is None:
        return F.linear(x, weight, bias)
    width = x.size(-1)
    learns = torch.is_grad_enabled()
    if faster.with_mkl and (
        learns or weight.numel() < WIDE or not LEAST_ROWS * width <= x.numel() <= SOME_ROWS * width
    ):
        return F.linear(x, weight, bias)
    small = (
        not learns
        and x.numel() <= faster.few_rows * width
        and width % LINE == 0
        and weight.is_contiguous()
        and native.kernels() is not None
    )
    # Written out: of a short text, such checks take a notable share of the time.
    is_served = (
        (small or faster.onednn)
        and x.numel() * weight.size(0) >= (LEAST_WORK_IN_C if small else LEAST_WORK)
        # Plain tensors in fp32 and the memory of the CPU.
        and x.dtype == weight.dtype == torch.float32
        and (x.is_cpu and weight.is_cpu)
        and (type(x) in native.PLAIN and type(weight) in native.PLAIN)
        # Of a bias, oneDNN ignores the stride.
        and (bias is None or (bias.dtype == x.dtype and bias.is_cpu and bias.is_contiguous()))
        and (bias is None or type(bias) in native.PLAIN)
        # Not in torch.func, forward-mode AD or autocast, not traced, and oneDNN is not off.
        and not (torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0)
        and not torch.is_autocast_enabled("cpu")
        and torch._C._get_mkldnn_enabled()
        and not torch.jit.is_tracing()
    )
    if not is_served:
        return F.linear(x, weight, bias)
    if learns:
        return _Linear.apply(x, weight, bias)
    if small:
        return _small_product(x, weight, bias)
    return of_some_rows(x, torch.ops.mkldnn._linear_pointwise, weight, bias, *NO_ACTIVATION)


def _small_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The product by the kernel in C."""
    outputs, width = weight.shape
    kernels = native.kernels()
    assert kernels is not None
    x = x.contiguous()
    out = x.new_empty(*x.shape[:-1], outputs)
    kernels.small_linear(
        native.pointer(out, *x.shape[:-1], outputs),
        native.pointer(x, *x.shape[:-1], width),
        native.pointer(weight, outputs, width),
        None if bias is None else native.pointer(bias, outputs),
        x.numel() // width,
        width,
        outputs,
    )
    return out


def of_some_rows(x: Tensor, product: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """`product(x, *arguments)` with at most 1/16 more rows; the result has the rows of x.

    oneDNN keeps a program of about 400 kB for each number of rows, and a server sees many.
    """
    rows = x.numel() // x.size(-1)
    added = -rows % (1 << max(0, rows.bit_length() - 5))
    if not added:
        return product(x, *arguments)
    padded = F.pad(x.flatten(0, -2), (0, 0, 0, added))
    return product(padded, *arguments)[:rows].view(*x.shape[:-1], -1)


class _Linear(torch.autograd.Function):
    """x weightᵀ + bias; the gradients are differentiable too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, *NO_ACTIVATION)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad_x = linear(gradient, weight.t(), None) if ctx.needs_input_grad[0] else None
        # B×T×O -> N×O
        gradient = gradient.flatten(0, -2)
        x = x.flatten(0, -2)
        grad_weight = _weight_gradient(gradient, x) if ctx.needs_input_grad[1] else None
        return grad_x, grad_weight, gradient.sum(0) if ctx.needs_input_grad[2] else None


def _weight_gradient(gradient: Tensor, x: Tensor) -> Tensor:
    """gradientᵀ x: N×O, N×I -> O×I; the first factor is transposed in memory, so the smaller."""
    if gradient.size(1) <= x.size(1):
        return linear(gradient.t(), x.t(), None)
    return linear(x.t(), gradient.t(), None).t()
