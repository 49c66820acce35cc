"""Names of parameters in two formats: a table of rules that applies in both directions."""

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

#: In the name of a projection that gives queries, keys and values.
JOINED = ".qkv_proj."


class Rule(NamedTuple):
    """One or more parameters under two names.

    `*` matches one part of a dotted name, `**` one or more; both are the same on both sides. An
    empty name here stands for a part that this package does not have.
    """

    theirs: str
    ours: str


Table = tuple[Rule, ...]


def to_ours(state: Mapping[str, Tensor], table: Table) -> dict[str, Tensor]:
    """Rename by the first rule that matches; names without a rule stay, as unknown ones."""
    named = ((next(iter(_names(name, table)), name), value) for name, value in state.items())
    return {name: value for name, value in named if name}


def to_theirs(
    state: Mapping[str, Tensor], table: Table, known: Collection[str] = ()
) -> dict[str, Tensor]:
    """Rename by all rules that match, for copies; names without a rule stay, as unknown ones.

    Of several names, those are taken that are `known` there, if there are any.
    """
    turned = tuple(Rule(rule.ours, rule.theirs) for rule in table)
    renamed: dict[str, Tensor] = {}
    for name, value in state.items():
        names = _names(name, turned)
        renamed |= dict.fromkeys([n for n in names if n in known] or names or [name], value)
    return renamed


def _names(name: str, table: Table) -> list[str]:
    names = []
    for pattern, target in table:
        regex = re.escape(pattern).replace(r"\*\*", "(.+)").replace(r"\*", "([^.]+)")
        if match := re.fullmatch(regex, name):
            new = target.replace("**", "*")
            for part in match.groups():
                new = new.replace("*", part, 1)
            names.append(new)
    return names


def split_projections(state: dict[str, Tensor]) -> None:
    """Replace joined projections by three, in place."""
    for name in [name for name in state if JOINED in name]:
        for part, value in zip("qkv", state.pop(name).chunk(3), strict=True):
            state[name.replace(JOINED, f".{part}_proj.")] = value


def join_projections(state: dict[str, Tensor]) -> None:
    """The inverse of `split_projections`."""
    for name in [name for name in state if ".self_attn.q_proj." in name]:
        parts = [name.replace(".q_proj.", f".{part}_proj.") for part in "qkv"]
        state[name.replace(".q_proj.", JOINED)] = torch.cat([state.pop(part) for part in parts])
