"""Models of transformers, built from models here by the tables of `architectures/`."""

import json
import math
from typing import Any

import torch
from torch import Tensor

from ..checkpoints.mismatch import differences
from ..errors import CheckpointError, ConfigurationError
from ..extras import import_extra
from .architectures import ARCHITECTURES
from .architectures.base import LABELS, TOKEN_TYPES, Architecture
from .families import CAUSAL, Family
from .keys import to_theirs
from .models import LM_HEAD, Converted, building_model, task_of, with_head
from .settings import to_config

#: In a converted directory: settings of its source without a counterpart.
KEPT = "transformers.json"


def library() -> Any:
    """transformers, whose Auto classes know the models of this package.

    Raises:
        UsageError: it is not installed.
    """
    found = import_extra("transformers", "hf")
    from .. import huggingface  # noqa: F401

    return found


def to_transformers(converted: Converted, kind: str, head: str | None) -> Any:
    """The model of transformers whose model_type is `kind`.

    It has the classification head of the name `head` alone, if there is one.

    Raises:
        UsageError: the model has no counterpart, or no such head.
    """
    family = converted.family
    written = {a.model_type: a for a in ARCHITECTURES if a.family is family and a.is_written}
    if kind not in written:
        raise ConfigurationError(
            f"--classes is {kind!r}, but a {family.model} can be: {', '.join(written)}."
        )
    architecture = written[kind]
    state = reordered(with_head(converted, head), converted.order, family)
    model = _empty(converted, architecture, head)
    if any(rule.ours == TOKEN_TYPES for rule in architecture.rules):
        state[TOKEN_TYPES] = torch.zeros(1, model.config.hidden_size)
    known = model.state_dict().keys()
    theirs = to_theirs(state, architecture.rules, known)
    if family.is_tied(converted.settings):
        # An output layer may be the embeddings themselves.
        output = state.get(family.output)
        theirs = {name: v for name, v in theirs.items() if v is not output or name in known}
    if found := differences(theirs, model.state_dict()):
        raise CheckpointError(f"the model has no counterpart there; parameters: {found}.")
    model.load_state_dict(theirs)
    if kind == "tupe" and family is CAUSAL:
        unscaled = converted.settings.get("no_scale_embedding")
        model.config.embedding_scale = 1.0 if unscaled else math.sqrt(model.config.hidden_size)
    return model


def _empty(converted: Converted, architecture: Architecture, head: str | None) -> Any:
    """The model of transformers with its own initial parameters."""
    transformers, kind = library(), architecture.model_type
    given = to_config(converted, head)
    for name, value in {**architecture.settings, **architecture.required}.items():
        if given.get(name, value) != value:
            raise CheckpointError(
                f"transformers' {kind} supports {name} {value!r} only, but the model's is "
                f"{given[name]!r}: use --classes tupe."
            )
    more = {**architecture.derived_there(given), **architecture.written}
    there = transformers.AutoConfig.for_model(kind)
    given |= _kept(converted, head)
    given = {name: value for name, value in given.items() if hasattr(there, name)} | more
    given["max_position_embeddings"] += architecture.first_position or 0
    with building_model(f"max_position_embeddings {given['max_position_embeddings']}"):
        config = transformers.AutoConfig.for_model(kind, **given)
        return class_of(converted, head).from_config(config).eval()


def reordered(
    state: dict[str, Tensor], order: list[int], family: Family, back: bool = True
) -> dict[str, Tensor]:
    """Parameters with the rows of tokens in another order, or back in that of the source."""
    rows = sorted(range(len(order)), key=order.__getitem__) if back else order
    own = {family.embeddings, family.output, f"{LM_HEAD}bias"}
    return {
        name: value[rows] if rows and name in own and len(value) == len(rows) else value
        for name, value in state.items()
    }


def _kept(converted: Converted, head: str | None) -> dict[str, Any]:
    """Settings of the source that have no counterpart here.

    Raises:
        CheckpointError: their file is damaged.
    """
    path = None if converted.folder is None else converted.folder / KEPT
    if path is None or not path.is_file():
        return {}
    try:
        found = dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from error
    return {name: value for name, value in found.items() if head or name not in LABELS}


def class_of(converted: Converted, head: str | None) -> Any:
    """The class of transformers that builds and loads such models."""
    language_model = "CausalLM" if converted.family is CAUSAL else "MaskedLM"
    task = task_of(converted.state, head) if head else language_model
    return getattr(library(), f"AutoModelFor{task}")
