"""What a trained model has learned about positions, as tensors; drawing is in `plots`."""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import UsageError
from .modules.encoder import Encoder


@torch.no_grad()
def positional_correlations(encoder: Encoder, length: int) -> Tensor:
    """What positions alone add to the attention scores: v_ij, before the softmax.

    TUPE: (p_i U^Q)(p_j U^K)ᵀ/√(2D) + b_{j−i}, with [CLS] reset where it is untied (Ke et al., ICLR
    2021, section 4 and its figure of heads). T5: b_{j−i}. It is the same in all layers.

    Args:
        encoder: an `Encoder`, e.g. a standalone one or `model.encoder.sentence_encoder`.
        length: number of positions T.

    Returns:
        H×T×T.

    Raises:
        UsageError: the encoding has no such term, or fewer positions than asked for.
    """
    encoding = encoder.embed_positions
    longest = encoding.shape.max_positions
    if not 1 <= length <= longest:
        raise UsageError(
            f"length must lie between 1 and the model's {longest} positions, but is {length}."
        )
    score = encoding.score(length, length)
    if score is None:
        raise UsageError(
            f"{type(encoding).__name__} adds nothing to the scores that depends on positions "
            "alone; there are no positional correlations to show."
        )
    return score.dense()
