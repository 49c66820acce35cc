"""Linear layers in 8 bits: a scale for each row of the input, and for each row of the weight.

Rows of the input do not depend on each other: sums of integers are exact, and all else is done row
by row, in the same order by all kernels in C. On processors with AVX-512 or AVX2, a kernel in C
multiplies the integers. Elsewhere, and of many rows where there is AMX, torch's oneDNN does.

Without VNNI, processors add products of 8 bits in pairs, and such a sum overflows beyond 16 bits.
There, the weights of each two neighbours are so small that it does not.
"""

import ctypes
import functools
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..base.errors import ConfigurationError
from ..base.machine import fact_of_processor
from . import native
from .linear import NO_ACTIVATION, of_some_rows

#: The largest weight.
LARGEST = 127
#: Rows up to which the kernel in C is faster than oneDNN with AMX.
FEW_ROWS = 64
#: Inputs that it computes together.
FOUR = 4
#: Parts that are made on the first call, and are not in copies and pickled files.
MADE = ("packed", "for_c")


class ForC(NamedTuple):
    """A layer as the kernel in C reads it, with the addresses of its tensors.

    Attributes:
        blocks: the weight, O/16 × I/4 × 16 × 4, or with AVX2 O/8 × I/4 × 8 × 4.
        scales: of the outputs, with the sums of their weights and their biases, 3×O.
        addresses: of these.
        inputs: I.
        outputs: O.
    """

    blocks: Tensor
    scales: Tensor
    addresses: tuple[int, int]
    inputs: int
    outputs: int

    @staticmethod
    def of(layer: "QuantizedLinear", kernels: ctypes.CDLL) -> "ForC":
        """What the kernel reads of a layer."""
        outputs, inputs = layer.weight.shape
        together = kernels.outputs_of_block()
        whole = F.pad(layer.weight, (0, 0, 0, -outputs % together))
        blocks = whole.view(-1, together, inputs // FOUR, FOUR).transpose(1, 2).contiguous()
        scales = torch.stack((layer.scales, layer.sums, layer.bias))
        addresses = (
            native.pointer(blocks, *blocks.shape, dtype=torch.int8),
            native.pointer(scales, 3, outputs),
        )
        return ForC(blocks, scales, addresses, inputs, outputs)


class QuantizedLinear(nn.Module):
    """A linear layer with a constant weight in 8 bits, for inference on CPUs.

    Each row of the input is quantized when it comes: x ≈ low + step · q, with q from 0 to 255,
    where low and low + 255 · step are the least and the greatest number of the row.

    Args:
        layer: whose weight, O×I, and bias it has; in fp32.
    """

    weight: Tensor
    scales: Tensor
    sums: Tensor
    bias: Tensor
    zeros: Tensor
    #: The weight as oneDNN reads it.
    packed: Tensor | None = None
    for_c: ForC | None = None

    def __init__(self, layer: nn.Linear):
        super().__init__()
        weight = layer.weight.detach()
        #: Whether the products do not overflow without VNNI.
        self.for_pairs = overflows()
        largest = weight.abs().amax(1)
        if self.for_pairs:
            largest = torch.maximum(largest, largest_pair(weight))
        scales = (largest / LARGEST).clamp(min=torch.finfo(weight.dtype).tiny)
        rounded = (weight / scales[:, None]).round()
        bias = weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach()
        self.register_buffer("weight", rounded.to(torch.int8))
        self.register_buffer("scales", scales)
        self.register_buffer("sums", rounded.sum(1) * scales)
        self.register_buffer("bias", bias)
        # Of the weight; oneDNN asks for them.
        self.register_buffer("zeros", torch.zeros(len(weight), dtype=torch.int32))

    def forward(self, x: Tensor) -> Tensor:
        """The product in fp32: B×T×I -> B×T×O, or N×I -> N×O.

        Raises:
            ConfigurationError: in a backward pass.
        """
        if torch.is_grad_enabled() and x.requires_grad:
            return _ForInference.apply(x, self)
        return self.product(x)

    def product(self, x: Tensor) -> Tensor:
        """What `forward` returns, without a gradient."""
        x = x.detach().float().contiguous()
        kernels = native.serving(x)
        if kernels is not None and hasattr(kernels, "quantized_product") and self._is_for_c(x):
            return self._product_in_c(kernels, x)
        rows = x.flatten(0, -2)
        if kernels is None:
            q, ranges = _quantize(rows)
            out = self._integers(q)
            _scale(out, ranges, self.sums, self.bias)
        else:
            q, ranges = _quantize_in_c(kernels, rows)
            out = self._integers(q)
            _scale_in_c(kernels, out, ranges, self.sums, self.bias)
        return out.view(*x.shape[:-1], -1)

    def _is_for_c(self, x: Tensor) -> bool:
        width = x.size(-1)
        if width % FOUR or (overflows_in_c() and not self.for_pairs):
            return False
        return x.numel() <= FEW_ROWS * width or not multiplies_int8()

    def _product_in_c(self, kernels: ctypes.CDLL, x: Tensor) -> Tensor:
        if self.for_c is None:
            self.for_c = ForC.of(self, kernels)
        _, _, addresses, inputs, outputs = self.for_c
        *shape, width = x.shape
        rows = x.numel() // width
        out = x.new_empty(*shape, outputs)
        # For the input in 8 bits, with two floats for each row.
        room = x.new_empty(rows, 2 + inputs // FOUR)
        kernels.quantized_product(
            native.pointer(out, *shape, outputs),
            native.pointer(x, *shape, inputs),
            *addresses,
            native.pointer(room, *room.shape),
            rows,
            inputs // FOUR,
            outputs,
        )
        return out

    def _integers(self, q: Tensor) -> Tensor:
        """Q weightᵀ, times the scales of the weight."""
        if not is_exact(self.for_pairs):
            return (q.double() @ self.weight.double().t()).float() * self.scales
        if self.packed is None:
            self.packed = torch.ops.onednn.qlinear_prepack(self.weight, None)
        return of_some_rows(q, _onednn, self.packed, self.scales, self.zeros)

    def extra_repr(self) -> str:
        return f"{self.weight.size(1)}, {self.weight.size(0)}, for inference"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in MADE}

    def _apply(self, fn: Any, *args: Any, **kwargs: Any) -> "QuantizedLinear":
        moved = fn(torch.zeros(1))
        if moved.dtype != torch.float32 or not moved.is_cpu:
            raise ConfigurationError(
                f"layers in int8 compute in fp32 on CPUs, but the model is moved to {moved.dtype} "
                f"on {moved.device}: move the model that was given to optimize."
            )
        return super()._apply(fn, *args, **kwargs)


class _ForInference(torch.autograd.Function):
    """The product of an input that needs a gradient, which there is none of."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: QuantizedLinear) -> Tensor:
        return layer.product(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise ConfigurationError(
            "layers in int8 have no gradients: train the model that was given to optimize."
        )


def _quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of x, N×I, in 8 bits; step and low of each row, 2×N."""
    low, high = torch.aminmax(x, dim=1)
    step = (high - low) / 255
    inverse = torch.where(step > 0, 1 / step, 0)
    q = (x - low[:, None]).mul_(inverse[:, None]).round_()
    return q.to(torch.uint8), torch.stack((step, low))


def _quantize_in_c(kernels: ctypes.CDLL, x: Tensor) -> tuple[Tensor, Tensor]:
    count, width = x.shape
    q = torch.empty(count, width, dtype=torch.uint8)
    ranges = x.new_empty(2, count)
    kernels.quantize_rows(
        native.pointer(q, count, width, dtype=torch.uint8),
        native.pointer(ranges, 2, count),
        native.pointer(x, count, width),
        count,
        width,
    )
    return q, ranges


def _scale(out: Tensor, ranges: Tensor, sums: Tensor, bias: Tensor) -> None:
    """Let out, N×O, be step · out + low · sums + bias."""
    step, low = ranges[..., None]
    out.mul_(step).add_(torch.addcmul(bias, low, sums))


def _scale_in_c(
    kernels: ctypes.CDLL, out: Tensor, ranges: Tensor, sums: Tensor, bias: Tensor
) -> None:
    count, width = out.shape
    kernels.scale_rows(
        native.pointer(out, count, width),
        native.pointer(ranges, 2, count),
        native.pointer(sums, width),
        native.pointer(bias, width),
        count,
        width,
    )


def gelu_in_c(x: Tensor) -> bool:
    """Compute the exact gelu of M×C in place, each number alone; False where nothing is done."""
    kernels = native.serving(x)
    if not hasattr(kernels, "gelu_rows") or x.stride(1) != 1:
        return False
    assert kernels is not None
    kernels.gelu_rows(native.pointer(x, *x.shape, strided=True), *x.shape, x.stride(0))
    return True


def _onednn(q: Tensor, packed: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
    """The product of numbers from 0 to 255 with a weight that oneDNN has packed."""
    of_q = (1.0, 0)
    of_out = (1.0, 0, torch.float32)
    multiply = torch.ops.onednn.qlinear_pointwise.default
    product: Tensor = multiply(q, *of_q, packed, scales, zeros, None, *of_out, *NO_ACTIVATION)
    return product


@functools.cache
def multiplies_int8() -> bool:
    """Whether the processor reports instructions for products of 8-bit matrices."""
    return "amx_int8" in (fact_of_processor("flags") or "").split()


def largest_pair(weight: Tensor) -> Tensor:
    """The largest sum of two neighbours in each row of a weight, O×I -> O.

    If it is 127 in 8 bits, two rounded neighbours have at most 128, and 255 · 128 < 2¹⁵.
    """
    pairs = F.pad(weight, (0, weight.size(1) % 2)).unflatten(1, (-1, 2))
    return pairs.sum(2).abs().amax(1)


def overflows() -> bool:
    """Whether a sum of two products of numbers in 8 bits overflows on this processor."""
    if hasattr(native.kernels(), "quantized_product"):
        return overflows_in_c()
    return is_exact(for_pairs=True) and not is_exact(for_pairs=False)


@functools.cache
def overflows_in_c() -> bool:
    """Whether it does in the kernel in C, which is there."""
    kernels = native.kernels()
    assert kernels is not None
    return bool(kernels.overflows())


@functools.cache
def is_exact(for_pairs: bool) -> bool:
    """Whether oneDNN is here, and exact for all weights, or if they are made for pairs."""
    if not torch.backends.mkldnn.is_available():
        return False
    if not hasattr(torch.ops.onednn, "qlinear_pointwise"):
        return False
    q = torch.full((16, 64), 255, dtype=torch.uint8)
    weight = torch.full((16, 64), LARGEST, dtype=torch.int8)
    if for_pairs:
        weight[:, ::2] = 1
    packed = torch.ops.onednn.qlinear_prepack(weight, None)
    product = _onednn(q, packed, torch.ones(16), torch.zeros(16, dtype=torch.int32))
    return torch.equal(product, q.float() @ weight.float().t())
