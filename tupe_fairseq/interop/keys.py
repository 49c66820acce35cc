"""Names of parameters in two formats: a table of rules that applies in both directions."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

#: The name of a classification head that was trained in transformers; fairseq's default.
HEAD = "sentence_classification_head"


class Rule(NamedTuple):
    """One or more parameters under two names.

    `*` matches one part of a dotted name, `**` one or more; both are the same on both sides.
    """

    theirs: str
    ours: str


Table = tuple[Rule, ...]


def to_ours(state: Mapping[str, Tensor], table: Table) -> dict[str, Tensor]:
    """Rename; names without a rule stay."""
    return {_new_name(name, table) or name: value for name, value in state.items()}


def to_theirs(state: Mapping[str, Tensor], table: Table) -> dict[str, Tensor]:
    """Rename; parameters without a rule are left out."""
    turned = tuple(Rule(rule.ours, rule.theirs) for rule in table)
    named = ((_new_name(name, turned), value) for name, value in state.items())
    return {name: value for name, value in named if name is not None}


def _new_name(name: str, table: Table) -> str | None:
    """The name by the first rule that matches."""
    for pattern, target in table:
        regex = re.escape(pattern).replace(r"\*\*", "(.+)").replace(r"\*", "([^.]+)")
        if match := re.fullmatch(regex, name):
            target = target.replace("**", "*")
            for part in match.groups():
                target = target.replace("*", part, 1)
            return target
    return None
