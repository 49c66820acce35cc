"""What fairseq's flags add to layers: activations, quantisation noise, FSDP wrapping."""

from collections.abc import Callable, Iterable

import torch.nn.functional as F
from fairseq import utils
from fairseq.distributed import fsdp_wrap
from fairseq.modules.quant_noise import quant_noise
from torch import Tensor, nn


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """Fairseq's function of that name; gelu without fairseq's fp32 copies."""
    return F.gelu if name == "gelu" else utils.get_activation_fn(name)


def input_noise(width: int, noise: float, block: int) -> nn.Module | None:
    """The projection that fairseq puts on the input under --quant-noise-pq, or None."""
    return quant_noise(nn.Linear(width, width, bias=False), noise, block) if noise > 0 else None


def add_quantization_noise(layers: Iterable[nn.Module], noise: float, block: int) -> None:
    """Add noise to the matrices of attention and feed-forward (Fan*, Stock* et al. 2020)."""
    names = ("q_proj", "k_proj", "v_proj", "out_proj")
    for layer in layers:
        attentions = [layer.self_attn, getattr(layer, "encoder_attn", None)]
        matrices = [
            getattr(attention, name) for attention in attentions if attention for name in names
        ]
        for matrix in (*matrices, layer.fc1, layer.fc2):
            quant_noise(matrix, noise, block)


def wrap_layers(layers: nn.ModuleList, checkpointed: bool, smallest: int) -> None:
    """Wrap layers for --ddp-backend fully_sharded; fsdp_wrap does nothing otherwise.

    Args:
        layers: the layers.
        checkpointed: whether activations are recomputed; then every layer is wrapped.
        smallest: --min-params-to-wrap.
    """
    for i, layer in enumerate(list(layers)):
        layers[i] = fsdp_wrap(layer, min_num_params=0 if checkpointed else smallest)
