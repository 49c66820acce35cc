"""What a trained model has learned about positions, as tensors.

scripts/plot_positional_correlations.py draws them.
"""

import torch
from torch import Tensor

from ..base.errors import ConfigurationError
from ..position import PositionEncoding
from .stack import TransformerStack


@torch.no_grad()
def positional_correlations(encoder: TransformerStack, length: int, layer: int = 1) -> Tensor:
    """The content-free term of the attention scores, before the softmax.

    TUPE: (p_i U^Q)(p_j U^K)ᵀ/√(2D) + b_{j−i}, with [CLS] reset if it is untied (Ke et al., ICLR
    2021, section 4 and its figure of heads). T5: b_{j−i}.

    Args:
        encoder: e.g. a `TUPEEncoder` or `model.encoder.sentence_encoder`.
        length: number of positions T.
        layer: counted from 1; matters for encodings that differ by layer.

    Returns:
        H×T×T.

    Raises:
        ConfigurationError: the encoding has no such term, or `length` or `layer` is out of range.
    """
    encoding = encoding_of(encoder, length, layer)
    bias = encoding.attention_bias(length, length)
    if bias is None:
        raise ConfigurationError(
            f"{type(encoding).__name__} has no term of the scores that depends on positions "
            "only, so no positional correlations."
        )
    return bias.dense()


def encoding_of(encoder: TransformerStack, length: int, layer: int) -> PositionEncoding:
    """The encoding as one layer uses it.

    Args:
        encoder: of the layer.
        length: number of positions that are asked for.
        layer: counted from 1.

    Raises:
        ConfigurationError: `length` or `layer` is out of range.
    """
    longest = encoder.embed_positions.shape.max_positions
    layers = len(encoder.layers)
    if not 1 <= length <= longest:
        raise ConfigurationError(
            f"invalid length {length}: it must be between 1 and the model's {longest} positions."
        )
    if not 1 <= layer <= layers:
        raise ConfigurationError(
            f"invalid layer {layer}: it must be between 1 and the model's {layers}."
        )
    return encoder.embed_positions.at(layer - 1)
