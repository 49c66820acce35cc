"""What encoder and decoder of the `tupe_transformer` models share."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import nn

from ..arguments.flags import position_options
from ..errors import UsageError
from ..position import PositionEncoding, build_position_encoding
from ..position.learned import LearnedPosition
from ..position.random_numbers import own_random_numbers

#: Options of encodings whose default is another in these models: position 0 holds no [CLS], and
#: `sinusoidal` is fairseq's, so that its checkpoints serve.
OPTION_DEFAULTS = {"tie_cls": True, "fairseq_sinusoids": True}
#: fairseq's flags that these models do not have, and what to do instead.
REFUSED = {
    "encoder_learned_pos": "use --position-encoding learned",
    "decoder_learned_pos": "use --position-encoding learned",
    "no_token_positional_embeddings": "use --position-encoding none",
    "cross_self_attention": "positions of source and target words have no distance; leave it out",
    "offload_activations": "use --checkpoint-activations",
    "base_layers": "leave it out",
    "character_embeddings": "leave it out",
    "adaptive_input": "leave it out",
    "encoder_xformers_att_config": "use --attention-backend",
    "decoder_xformers_att_config": "use --attention-backend",
    **dict.fromkeys(("scale_fc", "scale_attn", "scale_heads", "scale_resids"), "leave it out"),
}


def check_transformer(args: Any, model: str) -> None:
    """Refuse what stock transformers can and these cannot.

    Raises:
        UsageError: it is asked for.
    """
    for name, way_out in REFUSED.items():
        if value := getattr(args, name, None):
            flag = "--" + name.replace("_", "-")
            raise UsageError(f"{flag} is {value!r}, but {model} has no such thing: {way_out}.")
    cutoff = getattr(args, "adaptive_softmax_cutoff", None)
    # fairseq evaluates it as Python.
    if isinstance(cutoff, str) and not re.fullmatch(r"[\d\s,()\[\]]*", cutoff):
        raise UsageError(
            f"--adaptive-softmax-cutoff is {cutoff!r}, but must be numbers between commas."
        )
    if getattr(args, "deberta_emd", False):
        raise UsageError(
            "--deberta-emd adds positions for the prediction of masked words, but "
            f"{model} masks none: leave it out."
        )


def fill_position_options(args: Any) -> None:
    """Complete the options of the chosen encoding on ``args``; see `position_options`."""
    position_options(args, OPTION_DEFAULTS)


def build_positions(args: Any, side: str, max_positions: int, vocab_size: int) -> PositionEncoding:
    """The encoding of one side.

    Args:
        args: arguments of the model, complete.
        side: "encoder", or "decoder", which looks to the left only.
        max_positions: longest sentence.
        vocab_size: words.
    """
    width = getattr(args, f"{side}_embed_dim")
    encoding = build_position_encoding(
        args.position_encoding,
        width,
        getattr(args, f"{side}_attention_heads"),
        max_positions,
        bidirectional=side == "encoder",
        vocab_size=vocab_size,
        num_layers=getattr(args, f"{side}_layers"),
        **position_options(args, OPTION_DEFAULTS),
    )
    # Around the condition, so that all encodings leave the same random numbers.
    with own_random_numbers(), torch.no_grad():
        if isinstance(encoding, LearnedPosition):
            # As fairseq starts it, whose words are as large as ours.
            nn.init.normal_(encoding.weight, std=width**-0.5)
            encoding.weight[encoding.first_row - 1].zero_()
    return encoding
