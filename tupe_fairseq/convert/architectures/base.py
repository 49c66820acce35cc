"""What differs between the kinds of models of transformers that are converted."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..keys import Table

#: A setting that is kept where several kinds of models have the same form.
MODEL_TYPE = "model_type"


@dataclass(frozen=True)
class Architecture:
    """Models with one `model_type`.

    Attributes:
        model_type: in config.json.
        prefix: first part of the names of parameters below a head, if not model_type.
        rules: names of parameters there and here.
        settings: settings of `TupeConfig` that config.json does not have, and what its models do.
        required: settings of config.json with one value that models here can have.
        first_position: the row of the first position in the table of positions; None if it is
            not RoBERTa's table, in which it is 2.
        joined: whether one projection there gives queries, keys and values.
        biases: biases that a model there has only with a setting, and that setting. A model here
            always has them.
        types: how many token types a model there has at least; RoBERTa uses the first alone.
        kept: settings of config.json that `TupeConfig` does not have, which are written back.
        shown: settings of `kept` that the names of parameters show, whatever config.json says.
        derived: further settings of `TupeConfig` from a configuration there.
        derived_there: further settings there from those of `TupeConfig`.
    """

    model_type: str
    rules: Table
    prefix: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    required: Mapping[str, Any] = field(default_factory=dict)
    first_position: int | None = None
    types: int = 0
    joined: bool = False
    biases: Mapping[str, str] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    shown: Callable[[Collection[str]], dict[str, Any]] = lambda names: {}
    derived: Callable[[Any], dict[str, Any]] = lambda config: {}
    derived_there: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda config: {}
