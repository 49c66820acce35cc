"""Explain in one line, by the flag, why a checkpoint does not fit a model."""

import re
from collections.abc import Mapping, Set
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UsageError
from ..position import POSITION_ENCODINGS, build_position_encoding


def explain_mismatch(
    model: nn.Module, state_dict: dict[str, Tensor], stacks: Mapping[str, str]
) -> str:
    """Say what differs between a model and a state dict that it could not load.

    Args:
        model: the model; its `args` hold the flags.
        state_dict: with today's names (after `upgrade_state_dict`).
        stacks: names of encoder and decoder in the model, each with the argument that limits its
            input length.
    """
    args: Any = model.args
    own = model.state_dict()
    differ = {k for k in own.keys() & state_dict.keys() if own[k].shape != state_dict[k].shape}
    for stack in stacks:
        key = f"{stack}.embed_tokens.weight"
        if key in differ and len(own[key]) != len(state_dict[key]):
            return (
                f"the dictionary has {len(own[key])} symbols, but the checkpoint's had "
                f"{len(state_dict[key])}: use the dict.txt that the checkpoint was trained with."
            )
    for stack, limit in stacks.items():
        mine, theirs = (_positions_of(stack, tensors) for tensors in (own, state_dict))
        if mine.keys() != theirs.keys():
            return _other_encoding(args.position_encoding, mine.keys(), theirs.keys())
        keys = sorted(k for k in mine if mine[k].shape != theirs[k].shape)
        if keys and f"{stack}.embed_tokens.weight" not in differ:
            embed_positions: Any = model.get_submodule(stack).embed_positions
            tables = embed_positions.position_tables()
            return _other_positions(args, limit, mine, theirs, keys, tables)
    return (
        f"the checkpoint does not fit this model, parameters: {differences(state_dict, own)}; "
        "build the model with the --arch and sizes that the checkpoint was trained with."
    )


def differences(state: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> str:
    """Names of parameters that are missing, unknown or of another shape, or ""."""
    shapes = [
        f"{name} {tuple(state[name].shape)} instead of {tuple(expected[name].shape)}"
        for name in sorted(state.keys() & expected.keys())
        if state[name].shape != expected[name].shape
    ]
    parts = {
        "missing": sorted(expected.keys() - state.keys()),
        "unknown": sorted(state.keys() - expected.keys()),
        "of another shape": shapes,
    }
    return "; ".join(
        f"{len(names)} {what} ({', '.join(names[:8])}{', ...' if names[8:] else ''})"
        for what, names in parts.items()
        if names
    )


def _positions_of(stack: str, state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
    prefix = f"{stack}.embed_positions."
    return {k.removeprefix(prefix): v for k, v in state_dict.items() if k.startswith(prefix)}


def _other_encoding(name: str, own: Set[str], keys: Set[str]) -> str:
    likely = [other for other in POSITION_ENCODINGS if _keys_of(other, keys) == keys]
    if name in likely or _keys_of(name, own) != own:
        differ = _first(sorted(keys ^ own))
        return (
            f"--position-encoding is {name!r}, and the checkpoint has or lacks {differ}: give the "
            "options of the encoding that it was trained with."
        )
    known = f"that of {' or '.join(likely)}" if likely else f"unknown ({_first(sorted(keys))})"
    return (
        f"--position-encoding is {name!r}, but the checkpoint's encoding is {known}: "
        "build the model with the encoding that the checkpoint was trained with."
    )


def _keys_of(encoding: str, like: Set[str]) -> set[str]:
    """Names of the encoding's parameters for as many layers as the names `like` have."""
    found = (re.match(r"layers\.(\d+)\.", name) for name in like)
    layers = 1 + max((int(match[1]) for match in found if match), default=0)
    sizes: Any = {"vocab_size": 8, "num_layers": layers}
    sides = not POSITION_ENCODINGS[encoding].causal_only
    try:
        with torch.device("meta"):
            return set(build_position_encoding(encoding, 64, 2, 16, sides, **sizes).state_dict())
    # A user's encoding may refuse its default options.
    except UsageError:
        return set()


def _other_positions(args, limit: str, own, theirs, keys, tables: dict[str, int]) -> str:
    rows = {k: len(theirs[k]) - len(own[k]) for k in keys}
    tied = (
        f"--tie-cls is {bool(args.tie_cls)}, but the checkpoint was trained with "
        f"{not args.tie_cls}"
        if hasattr(args, "tie_cls")
        else None
    )
    # θ1 and θ2 of an untied [CLS] are rows of their own in b, one in encoders and two in decoders.
    if tied and _are_of_cls(rows.get("relative_bias.weight", 0), args.tie_cls):
        return f"{tied}."
    if limited := [more for name, more in rows.items() if name in tables]:
        longer = " or continue beyond them with --extend-positions hierarchical"
        flag, most = "--" + limit.replace("_", "-"), getattr(args, limit)
        # In the table of positions, an untied [CLS] takes one row more.
        ambiguous = tied and "relative_bias.weight" not in own and abs(limited[0]) == 1
        either = f"; or {tied}" if ambiguous and _are_of_cls(limited[0], args.tie_cls) else ""
        return (
            f"{flag} is {most}, but the checkpoint has "
            f"{most + limited[0]} positions: give that number (in fine-tuning "
            "too, where it also limits the length of an example)"
            f"{longer if limited[0] < 0 else ''}{either}."
        )
    shapes = [f"{k} {tuple(theirs[k].shape)}, here {tuple(own[k].shape)}" for k in keys]
    return (
        f"the positions of the checkpoint have other shapes ({_first(shapes)}): give the options "
        f"(--num-buckets, ...) that it was trained with."
    )


def _are_of_cls(more: int, tied: bool) -> bool:
    """Whether the numbers of rows differ by those of an untied [CLS]."""
    return abs(more) in (1, 2) and (more > 0) == bool(tied)


def _first(items: list[str], most: int = 3) -> str:
    return ", ".join(items[:most]) + (", ..." if len(items) > most else "")
