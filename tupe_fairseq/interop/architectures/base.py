"""What differs between the kinds of models of transformers that are converted."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..families import MASKED, Family
from ..keys import Table

#: The name here of a table of token types, which is added to positions or tokens.
TOKEN_TYPES = "token_types"
#: Settings of a classification head without a counterpart here.
LABELS = ("id2label", "label2id", "problem_type")


@dataclass(frozen=True)
class Architecture:
    """Models with one `model_type`.

    Attributes:
        model_type: in config.json.
        prefix: first part of the names of parameters below a head, if not model_type.
        rules: names of parameters there and here.
        family: the kind of model here.
        settings: settings of `TupeConfig` that config.json does not have, and what its models do.
        required: settings of config.json with one value that models here can have.
        written: settings of config.json that `TupeConfig` does not have.
        is_written: whether models can be written, or only read.
        first_position: the row of the first position in the table of positions; None if it is
            not RoBERTa's table, in which it is 2.
        kept: settings of config.json without a counterpart, which are written back.
        derived: further settings of `TupeConfig` from a configuration there.
        derived_there: further settings there from those of `TupeConfig`.
    """

    model_type: str
    rules: Table
    prefix: str = ""
    family: Family = MASKED
    settings: Mapping[str, Any] = field(default_factory=dict)
    required: Mapping[str, Any] = field(default_factory=dict)
    written: Mapping[str, Any] = field(default_factory=dict)
    is_written: bool = True
    first_position: int | None = None
    kept: tuple[str, ...] = ()
    derived: Callable[[Any], dict[str, Any]] = lambda config: {}
    derived_there: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda config: {}
