"""Linear layers with weights in 8 bits, whose inputs are quantized when they run."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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
        with _packing():
            rows = torch.quantize_per_channel(weight, scales.double(), zeros, 0, torch.qint8)
            self.packed = torch.ops.quantized.linear_prepack(rows, layer.bias)

    def __getstate__(self) -> dict[str, Any]:
        """The state with arrays: torch cannot share quantized tensors between processes."""
        with _packing():
            rows, bias = torch.ops.quantized.linear_unpack(self.packed)
            arrays = [rows.int_repr().numpy(), rows.q_per_channel_scales().numpy()]
        arrays += [] if bias is None else [bias.detach().numpy()]
        return {**self.__dict__, "packed": arrays}

    def __setstate__(self, state: dict[str, Any]) -> None:
        values, scales, *bias = map(torch.tensor, state.pop("packed"))
        super().__setstate__(state)
        zeros = torch.zeros_like(scales, dtype=torch.int64)
        with _packing():
            rows = torch._make_per_channel_quantized_tensor(values, scales, zeros, 0)
            self.packed = torch.ops.quantized.linear_prepack(rows, bias[0] if bias else None)

    def forward(self, x: Tensor) -> Tensor:
        return of_some_rows(x, self._product)

    def _product(self, x: Tensor) -> Tensor:
        product: Tensor = torch.ops.quantized.linear_dynamic(x, self.packed, reduce_range=False)
        return product


@contextmanager
def _packing() -> Iterator[None]:
    """Where processors have instructions for 8 bits, pack weights for oneDNN, which uses them.

    Without the announcement of torch that torchao will replace quantized tensors.
    """
    engine = torch.backends.quantized.engine
    with_vnni = getattr(torch.cpu, "_is_vnni_supported", bool)()
    if with_vnni and "onednn" in torch.backends.quantized.supported_engines:
        torch.backends.quantized.engine = "onednn"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.backends.quantized.engine = engine
