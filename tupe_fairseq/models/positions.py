"""The position encoding of an encoder or decoder, built from complete arguments."""

from typing import Any

import torch
from torch import nn

from ..arguments.completion import position_options
from ..position import PositionEncoding, build_position_encoding
from ..position.learned import LearnedPosition
from ..position.rng import isolated_rng


def build_positions(args: Any, side: str, max_positions: int, vocab_size: int) -> PositionEncoding:
    """The encoding of one side of a model.

    Args:
        args: arguments of the model, complete.
        side: "encoder", or "decoder", which is causal.
        max_positions: longest sequence, in tokens.
        vocab_size: tokens in the dictionary.
    """
    return build_position_encoding(
        args.position_encoding,
        getattr(args, f"{side}_embed_dim"),
        getattr(args, f"{side}_attention_heads"),
        max_positions,
        bidirectional=side == "encoder",
        vocab_size=vocab_size,
        num_layers=getattr(args, f"{side}_layers"),
        window=args.attention_window,
        global_every=args.global_every,
        extension=args.extend_positions,
        **position_options(args),
    )


def build_transformer_positions(
    args: Any, side: str, max_positions: int, vocab_size: int
) -> PositionEncoding:
    """As `build_positions`; learned positions are initialised as fairseq's transformers do."""
    encoding = build_positions(args, side, max_positions, vocab_size)
    # Around the condition, so that all encodings leave the same random numbers.
    with isolated_rng(), torch.no_grad():
        if isinstance(encoding, LearnedPosition):
            # As large as the token embeddings.
            nn.init.normal_(encoding.weight, std=encoding.shape.embed_dim**-0.5)
            encoding.weight[encoding.first_row - 1].zero_()
    return encoding
