"""Settings of a converted model, taken from its parameters where these show them."""

import re
from collections.abc import Mapping
from typing import Any

import torch
from fairseq import utils
from torch import Tensor

from ..errors import CheckpointError
from .families import MASKED, Family

PROBABILITIES = ("dropout", "attention_dropout", "activation_dropout", "pooler_dropout")
ACTIVATIONS = ("activation_fn", "pooler_activation_fn")


def matrix(state: Mapping[str, Tensor], name: str, source: object, kind: str) -> Tensor:
    """The parameter of this name, which must be a matrix.

    Raises:
        CheckpointError: it is missing or has another number of dimensions.
    """
    found = state.get(name)
    if found is None or found.dim() != 2:
        raise CheckpointError(f"{source} is not a {kind} checkpoint: it has no matrix {name}.")
    return found


def checked(
    recorded: Mapping[str, Any],
    state: Mapping[str, Tensor],
    source: object,
    family: Family = MASKED,
) -> dict[str, Any]:
    """Sizes from the parameters; the number of heads, dropouts and activations as recorded.

    Args:
        recorded: settings.
        state: parameters by their names here.
        source: the file, for messages.
        family: the kind of model.

    Raises:
        CheckpointError: token embeddings or layer 0 are missing, the number of heads does not
            divide the width, or a setting is not a probability or not an activation of fairseq.
    """
    fc1 = f"{family.stack}layers.0.fc1.weight"
    tokens, inner = (matrix(state, n, source, family.model) for n in (family.embeddings, fc1))
    layers = (re.match(rf"{re.escape(family.stack)}layers\.(\d+)\.", name) for name in state)
    heads, width = recorded.get(f"{family.side}_attention_heads"), tokens.size(1)
    if not isinstance(heads, int) or heads < 1 or width % heads:
        raise CheckpointError(
            f"invalid {family.side}_attention_heads in {source}: {heads!r} does not divide the "
            f"width {width}."
        )
    functions = {n: recorded[n] for n in (*PROBABILITIES, *ACTIVATIONS) if n in recorded}
    for name, value in functions.items():
        if name in PROBABILITIES:
            valid = isinstance(value, int | float) and 0 <= value < 1
        else:
            valid = value in utils.get_available_activation_fns()
        if not valid:
            raise CheckpointError(f"invalid {name} in {source}: {value!r}.")
    return {
        f"{family.side}_layers": len({match[1] for match in layers if match}),
        f"{family.side}_embed_dim": width,
        f"{family.side}_ffn_embed_dim": len(inner),
        f"{family.side}_attention_heads": heads,
        **functions,
    }


def of_roberta(
    recorded: Mapping[str, Any], state: Mapping[str, Tensor], source: object, encoding: str
) -> dict[str, Any]:
    """Settings of a `tupe_roberta` with `learned` positions or those of TUPE.

    Arguments and errors are those of `checked`.
    """
    stack, head = MASKED.stack, state.get(MASKED.output)
    # fairseq counts learned positions from padding_idx + 1 = 2; TUPE has θ1, θ2 and 1, 2, ...
    unused = 2 if encoding == "learned" else 1
    return {
        **checked(recorded, state, source),
        "position_encoding": encoding,
        "max_positions": len(state[f"{stack}embed_positions.weight"]) - unused,
        "layernorm_embedding": f"{stack}layernorm_embedding.weight" in state,
        "encoder_normalize_before": f"{stack}layer_norm.weight" in state,
        **MASKED.tying(head is None or torch.equal(head, state[MASKED.embeddings])),
    }
