"""Explain in one line why a checkpoint does not fit a model, with the flag to change."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

#: Flags of fairseq that tie embeddings and the output layer.
TYING = ("--share-all-embeddings", "--share-decoder-input-output-embed")
LONGER = " or continue beyond them with --extend-positions hierarchical"


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
    expected = model.state_dict()
    for stack in stacks:
        key = f"{stack}.embed_tokens.weight"
        if key in state_dict and len(expected[key]) != len(state_dict[key]):
            return (
                f"the dictionary has {len(expected[key])} symbols, but the checkpoint's had "
                f"{len(state_dict[key])}: use the dict.txt that the checkpoint was trained with."
            )
    for stack, limit in stacks.items():
        prefix = f"{stack}.embed_positions."
        mine = {name for name in expected if name.startswith(prefix)}
        theirs = {name for name in state_dict if name.startswith(prefix)}
        if mine != theirs:
            return (
                f"--position-encoding is {args.position_encoding!r}, which has {_few(mine)}, but "
                f"the checkpoint has {_few(theirs)}: build the model with the encoding that the "
                "checkpoint was trained with, and its options."
            )
        positions: Any = model.get_submodule(stack).embed_positions
        for name in positions.position_tables():
            more = len(state_dict[prefix + name]) - len(expected[prefix + name])
            if more:
                return _other_length(args, limit, more, positions.continues_by_distance)
    return (
        "the checkpoint does not fit this model, parameters: "
        f"{differences(state_dict, expected)}; build the model with the --arch, sizes and options "
        "that the checkpoint was trained with."
    )


def explain_ties(model: nn.Module, state_dict: Mapping[str, Tensor]) -> str:
    """Say which values of a state dict differ, but are one parameter of the model; or ""."""
    same: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if name in state_dict:
            same.setdefault(id(parameter), []).append(name)
    for first, *others in same.values():
        for other in others:
            if not torch.equal(state_dict[first], state_dict[other]):
                args: Any = model.args
                ties = [f for f in TYING if getattr(args, f[2:].replace("-", "_"), False)]
                way_out = f"leave out {ties[0]}" if ties else "pass --untie-weights-roberta"
                return (
                    f"{first} and {other} are tied in this model, but differ in the checkpoint: "
                    f"{way_out}."
                )
    return ""


def _other_length(args: Any, limit: str, more: int, continues: bool) -> str:
    """The checkpoint has `more` positions than the model."""
    if args.extend_positions == "toeplitz":
        most = args.trained_positions
        return (
            f"--trained-positions is {most}, but the checkpoint has {most + more} positions: give "
            "that number."
        )
    flag = "--" + limit.replace("_", "-")
    most = getattr(args, limit)
    longer = LONGER + (" or toeplitz" if continues else "")
    return (
        f"{flag} is {most}, but the checkpoint has {most + more} positions: give that number (in "
        f"fine-tuning too, where it also limits the length of an example){longer * (more < 0)}."
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


def _few(names: Iterable[str], most: int = 3) -> str:
    names = sorted(name.rpartition("embed_positions.")[2] for name in names)
    return ", ".join(names[:most]) + (", ..." if names[most:] else "") or "no parameters"
