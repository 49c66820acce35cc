"""The parameters that an encoder begins with, beside those that it shares with its source."""

import torch

from ..position.learned import LearnedPosition
from .encoders import Encoder


@torch.no_grad()
def keep_mean_position(source: Encoder, student: Encoder, length: int) -> None:
    """Add the mean of the source's position embeddings to the input of each token.

    The first LayerNorm then reads what it has read before, but for the place. For sources that
    add positions to the input, and encoders with token types.
    """
    positions = source.base.encoder.embed_positions
    types = student.base.encoder.embed_token_types
    if isinstance(positions, LearnedPosition) and types is not None:
        first = positions.first_row
        types.weight += positions.weight[first : first + length].mean(0)
