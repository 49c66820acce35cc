"""Names of parameters in two formats: a table of rules, read in either direction."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import UsageError


class Rule(NamedTuple):
    """One or more parameters under two names.

    `*` stands for one part of a dotted name and is the same on both sides.

    Attributes:
        theirs: name in the other format.
        ours: name here, or several names of equal parts that `theirs` holds one below the other.
    """

    theirs: str
    ours: str | tuple[str, ...]

    @property
    def parts(self) -> tuple[str, ...]:
        """The names here, always as a tuple."""
        return (self.ours,) if isinstance(self.ours, str) else self.ours


Table = tuple[Rule, ...]


def to_ours(state: Mapping[str, Tensor], table: Table) -> dict[str, Tensor]:
    """Rename, and split what is joined there; names without a rule are left out."""
    found = {}
    for name, value in state.items():
        for rule in table:
            if (stars := _match(rule.theirs, name)) is not None:
                parts = value.chunk(len(rule.parts))
                for part_name, part in zip(rule.parts, parts, strict=True):
                    found[_fill(part_name, stars)] = part
                break
    return found


def to_theirs(state: Mapping[str, Tensor], table: Table) -> dict[str, Tensor]:
    """Rename, and join what is one parameter there; names without a rule are left out."""
    found = {}
    for name in state:
        for rule in table:
            if (stars := _match(rule.parts[0], name)) is not None:
                parts = [state[_fill(part, stars)] for part in rule.parts]
                found[_fill(rule.theirs, stars)] = torch.cat(parts) if parts[1:] else parts[0]
                break
    return found


def without_rule(state: Mapping[str, Tensor], table: Table) -> dict[str, Tensor]:
    """Parameters here that the table has no name for."""
    parts = [part for rule in table for part in rule.parts]
    return {n: v for n, v in state.items() if all(_match(part, n) is None for part in parts)}


def check_fit(
    state: Mapping[str, Tensor], expected: Mapping[str, Tensor], source: object, kind: str
) -> None:
    """Compare names and shapes of what was read with what the model needs, both as they are there.

    Args:
        state: as read.
        expected: tensors of the right shape.
        source: the file, for the message.
        kind: the format, for the message.

    Raises:
        UsageError: a parameter is missing, unknown or of another shape; they are named.
    """
    shapes = {
        name: f"{name} {tuple(state[name].shape)} instead of {tuple(value.shape)}"
        for name, value in expected.items()
        if name in state and state[name].shape != value.shape
    }
    parts = {
        "missing": sorted(expected.keys() - state.keys()),
        "unknown": sorted(state.keys() - expected.keys()),
        "of another shape": [shapes[name] for name in sorted(shapes)],
    }
    told = [
        f"{len(names)} {what} ({', '.join(names[:8])}{', ...' if names[8:] else ''})"
        for what, names in parts.items()
        if names
    ]
    if told:
        raise UsageError(f"{source} is no {kind} checkpoint; parameters: {'; '.join(told)}.")


def _match(pattern: str, name: str) -> tuple[str, ...] | None:
    regex = re.escape(pattern).replace(r"\*", r"([^.]+)")
    match = re.fullmatch(regex, name)
    return None if match is None else match.groups()


def _fill(pattern: str, stars: tuple[str, ...]) -> str:
    for star in stars:
        pattern = pattern.replace("*", star, 1)
    return pattern
