"""The precision in which the layers of an optimized encoder compute."""

import copy
import warnings
from typing import Any

import torch
from torch import nn

#: Values of `precision`.
PRECISIONS = ("fp32", "bf16", "int8")


def convert(encoder: Any, precision: str) -> None:
    """Let the layers compute in another precision, for inference; heads and embeddings stay.

    "bf16" stores and computes the layers in bfloat16. "int8" stores each row of the matrices in
    8 bits with a scale, and quantizes what they multiply when they run (`torch.ao.quantization`,
    which runs on every processor without a compiler; torchao's int8 needs torch.compile).
    """
    if precision == "fp32":
        return
    layers = copy.deepcopy(encoder.encoder).requires_grad_(False)
    if precision == "bf16":
        layers = layers.to(torch.bfloat16)
    else:
        with warnings.catch_warnings():
            # torch.ao.quantization goes to torchao in the future.
            warnings.simplefilter("ignore")
            by_row = torch.ao.quantization.per_channel_dynamic_qconfig
            layers = torch.ao.quantization.quantize_dynamic(layers, {nn.Linear: by_row})
    encoder.encoder = layers
    encoder.build()
