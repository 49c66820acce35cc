"""Settings of a converted model, inferred from its parameters where possible."""

import re
from collections.abc import Mapping
from typing import Any

from fairseq import utils
from torch import Tensor

from ..errors import CheckpointError

PROBABILITIES = ("dropout", "attention_dropout", "activation_dropout", "pooler_dropout")
ACTIVATIONS = ("activation_fn", "pooler_activation_fn")


def sizes(
    recorded: Mapping[str, Any],
    theirs: Mapping[str, Tensor],
    encoder: str,
    source: object,
    side: str = "encoder",
) -> dict[str, Any]:
    """Sizes of a Transformer from its parameters; the number of heads as recorded.

    Args:
        recorded: settings of the checkpoint.
        theirs: its parameters.
        encoder: prefix of the encoder's or decoder's parameters.
        source: the file, for messages.
        side: "encoder" or "decoder", with which the settings begin.

    Raises:
        CheckpointError: parameters of the words or of layer 0 are missing, or the number of heads
            does not divide the width.
    """
    words, fc1 = (
        _matrix(theirs, f"{encoder}{name}.weight", source)
        for name in ("embed_tokens", "layers.0.fc1")
    )
    found = (re.match(rf"{re.escape(encoder)}layers\.(\d+)\.", name) for name in theirs)
    heads, width = recorded.get(f"{side}_attention_heads"), words.size(1)
    if not isinstance(heads, int) or heads < 1 or width % heads:
        raise CheckpointError(
            f"invalid {side}_attention_heads in {source}: {heads!r} does not divide the width "
            f"{width}."
        )
    return {
        f"{side}_layers": len({match[1] for match in found if match}),
        f"{side}_embed_dim": width,
        f"{side}_ffn_embed_dim": len(fc1),
        f"{side}_attention_heads": heads,
    }


def _matrix(theirs: Mapping[str, Tensor], name: str, source: object) -> Tensor:
    if name not in theirs or theirs[name].dim() != 2:
        raise CheckpointError(f"{source}: the checkpoint has no matrix {name}.")
    return theirs[name]


def functions(recorded: Mapping[str, Any], source: object) -> dict[str, Any]:
    """Dropout probabilities and activations, as recorded.

    Raises:
        CheckpointError: one is not a probability, or not an activation of fairseq.
    """
    found = {name: recorded[name] for name in (*PROBABILITIES, *ACTIVATIONS) if name in recorded}
    for name, value in found.items():
        if name in PROBABILITIES:
            good = isinstance(value, int | float) and 0 <= value < 1
        else:
            good = value in utils.get_available_activation_fns()
        if not good:
            raise CheckpointError(f"invalid {name} in {source}: {value!r}.")
    return found
