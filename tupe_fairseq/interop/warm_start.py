"""Warm starts: a trained RoBERTa under another position encoding."""

from dataclasses import replace
from typing import Annotated

from fairseq import utils

from .models import POSITIONS, Converted, build

#: Options of formats that can be read as a warm start.
Encoding = Annotated[str, "NAME of an encoding other than `learned`: warm start"]
Seed = Annotated[int, "seed of the new parameters (default: 1)"]


def warm_start(converted: Converted, position_encoding: str, seed: int) -> Converted:
    """Replace `learned` positions by those of another encoding, newly initialised."""
    if position_encoding == "learned":
        return converted
    settings = converted.settings | {"position_encoding": position_encoding}
    utils.set_torch_seed(seed)
    fresh = build(settings, converted.dictionary, converted.state).state_dict()
    # Another encoding's table of positions may have the same name, but not the same meaning.
    kept = {n: v for n, v in converted.state.items() if n in fresh and n != POSITIONS}
    new = sorted(fresh.keys() - kept.keys())
    count = sum(fresh[name].numel() for name in new)
    told = f"new, {count:,} parameters: {', '.join(new) or 'none'}"
    return replace(
        converted,
        settings=settings,
        state=fresh | kept,
        notes=[*converted.notes, f"left out: {POSITIONS}", told],
        not_comparable="a warm start has other positions than its source",
    )
