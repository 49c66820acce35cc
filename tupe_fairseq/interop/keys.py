"""Names of parameters in two formats: a table of rules that applies in both directions."""

import re
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

#: The name of a classification head that was trained in transformers; fairseq's default.
HEAD = "sentence_classification_head"


class Rule(NamedTuple):
    """One or more parameters under two names.

    `*` matches one part of a dotted name, `**` one or more; both are the same on both sides.

    `ours` is the name here, or several names of equal parts that `theirs` concatenates.
    """

    theirs: str
    ours: str | tuple[str, ...]

    @property
    def parts(self) -> tuple[str, ...]:
        """The names here, always as a tuple."""
        return (self.ours,) if isinstance(self.ours, str) else self.ours


Table = tuple[Rule, ...]


def roberta_rules(top: str, encoder: str, joint: bool) -> Table:
    """Rules for RoBERTa's layers and heads; `joint`: attention has one projection."""
    layer, own = f"{top}sentence_encoder.layers.*.", f"{encoder}layers.*."
    projections = [f"{own}self_attn.{name}_proj" for name in "qkv"]
    joined = [
        Rule(f"{layer}self_attn.in_proj_{kind}", tuple(f"{p}.{kind}" for p in projections))
        for kind in ("weight", "bias")
    ]
    same = ["self_attn.out_proj", "self_attn_layer_norm", "fc1", "fc2", "final_layer_norm"]
    if not joint:
        same += [f"self_attn.{name}_proj" for name in "qkv"]
    return (
        *(joined if joint else ()),
        *(Rule(f"{layer}{name}.*", f"{own}{name}.*") for name in same),
        Rule(f"{top}lm_head.**", "encoder.lm_head.**"),
        Rule("classification_heads.**", "classification_heads.**"),
    )


def to_ours(state: Mapping[str, Tensor], table: Table) -> dict[str, Tensor]:
    """Rename, and split concatenated parameters; names without a rule are left out."""
    found = {}
    for name, value in state.items():
        for rule in table:
            if (stars := _match(rule.theirs, name)) is not None:
                parts = value.chunk(len(rule.parts)) if rule.parts[1:] else (value,)
                for part_name, part in zip(rule.parts, parts, strict=True):
                    found[_fill(part_name, stars)] = part
                break
    return found


def to_theirs(state: Mapping[str, Tensor], table: Table) -> dict[str, Tensor]:
    """Rename, and concatenate parameters; names without a rule are left out."""
    found = {}
    for name in state:
        for rule in table:
            if (stars := _match(rule.parts[0], name)) is not None:
                parts = [state[_fill(part, stars)] for part in rule.parts]
                found[_fill(rule.theirs, stars)] = torch.cat(parts) if parts[1:] else parts[0]
                break
    return found


def _match(pattern: str, name: str) -> tuple[str, ...] | None:
    regex = re.escape(pattern).replace(r"\*\*", "(.+)").replace(r"\*", "([^.]+)")
    match = re.fullmatch(regex, name)
    return None if match is None else match.groups()


def _fill(pattern: str, stars: tuple[str, ...]) -> str:
    given = iter(stars)
    return re.sub(r"\*\*?", lambda _: next(given), pattern)
