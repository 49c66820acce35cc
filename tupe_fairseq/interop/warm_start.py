"""Warm starts: a trained model under another position encoding."""

import re
from dataclasses import replace
from typing import Annotated

from fairseq import utils

from .models import POSITIONS, Converted, build, options_of

#: Options of formats that can be read as a warm start.
Encoding = Annotated[str, "NAME of another encoding than the source's: warm start"]
Seed = Annotated[int, "seed of the new parameters (default: 1)"]
#: Begin or are part of the names of an encoding's parameters.
TABLES, TERMS = POSITIONS.removesuffix("weight"), ".self_attn.layer_terms."


def warm_start(converted: Converted, position_encoding: str | None, seed: int) -> Converted:
    """Replace positions by those of another encoding, newly initialised, with default options.

    None, or the name of the model's own encoding, keeps them.
    """
    if position_encoding in (None, converted.settings["position_encoding"]):
        return converted
    own = options_of(converted.settings)
    settings = {name: value for name, value in converted.settings.items() if name not in own}
    settings["position_encoding"] = position_encoding
    utils.set_torch_seed(seed)
    fresh = build(settings, converted.dictionary, converted.state).state_dict()
    # The other encoding's parameters may have the same names, but not the same meaning.
    positional = [name for name in converted.state if name.startswith(TABLES) or TERMS in name]
    kept = {n: v for n, v in converted.state.items() if n in fresh and n not in positional}
    new = sorted(fresh.keys() - kept.keys())
    count = sum(fresh[name].numel() for name in new)
    told = f"new, {count:,} parameters: {', '.join(new) or 'none'}"
    # Each layer has the same.
    left_out = dict.fromkeys(re.sub(r"\.\d+\.", ".*.", name) for name in positional)
    return replace(
        converted,
        settings=settings,
        state=fresh | kept,
        notes=[*converted.notes, f"left out: {', '.join(left_out)}", told],
        not_comparable="a warm start has other positions than its source",
    )
