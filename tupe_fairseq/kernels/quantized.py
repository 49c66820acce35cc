"""Linear layers with weights in 8 bits, whose inputs are quantized when they run."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from .linear import of_some_rows

#: Weights have 7 bits and inputs 8, because products of two numbers of 8 bits overflow on
#: processors without VNNI. torch.ao.quantization takes the bit from the inputs; but those have
#: outliers and one scale for all (all-MiniLM-L6-v2 on STS-B: 86.42, and 86.57 this way).
LARGEST = 63


class QuantizedLinear(nn.Module):
    """A linear layer with constant weights and a scale for each row of them."""

    def __init__(self, layer: nn.Linear):
        super().__init__()
        weight = layer.weight.detach()
        scales = (weight.abs().amax(1) / LARGEST).clamp(min=torch.finfo(weight.dtype).tiny)
        zeros = torch.zeros_like(scales, dtype=torch.int64)
        with _fastest_engine(), warnings.catch_warnings():
            # torch announces that torchao will replace such tensors.
            warnings.simplefilter("ignore")
            rows = torch.quantize_per_channel(weight, scales.double(), zeros, 0, torch.qint8)
            self.packed = torch.ops.quantized.linear_prepack(rows, layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        return of_some_rows(x, self._product)

    def _product(self, x: Tensor) -> Tensor:
        product: Tensor = torch.ops.quantized.linear_dynamic(x, self.packed, reduce_range=False)
        return product


@contextmanager
def _fastest_engine() -> Iterator[None]:
    """Where processors have instructions for 8 bits, pack weights for oneDNN, which uses them."""
    engine = torch.backends.quantized.engine
    with_vnni = getattr(torch.cpu, "_is_vnni_supported", bool)()
    if with_vnni and "onednn" in torch.backends.quantized.supported_engines:
        torch.backends.quantized.engine = "onednn"
    try:
        yield
    finally:
        torch.backends.quantized.engine = engine
