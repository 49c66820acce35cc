"""Models of transformers, built from models here by the tables of `architectures/`."""

import math
from typing import Any

import torch
from torch import Tensor

from ..checkpoints.mismatch import differences
from ..errors import CheckpointError, ConfigurationError
from ..extras import import_extra
from .architectures import ARCHITECTURES
from .architectures.base import PROBLEM, Architecture
from .families import CAUSAL, Family
from .keys import to_theirs
from .models import (
    HEADS,
    LM_HEAD,
    POOLER,
    POSITIONS,
    TOKEN_TYPES,
    Converted,
    building_model,
    task_of,
    with_head,
)
from .settings import to_config


def library() -> Any:
    """transformers, whose Auto classes know the models of this package.

    Raises:
        UsageError: it is not installed.
    """
    found = import_extra("transformers", "hf")
    from .. import huggingface  # noqa: F401

    return found


def to_transformers(converted: Converted, kind: str, head: str | None) -> Any:
    """The model of transformers whose model_type is `kind`, with this head, if there is one.

    Raises:
        UsageError: the model has no counterpart, or no such head.
    """
    family = converted.family
    written = {a.model_type: a for a in ARCHITECTURES if a.family is family}
    if kind not in written:
        raise ConfigurationError(
            f"--classes is {kind!r}, but a {family.model} can be: {', '.join(written)}."
        )
    architecture = written[kind]
    state = reordered(with_head(converted, head), converted.order, family)
    model = _empty(converted, architecture, head)
    _adapt(state, model, architecture)
    bare = converted.writes_features(head)
    pooler = [name for name in state if name.startswith(f"{HEADS}{POOLER}.")]
    if bare and not pooler:
        model.pooler = None
    elif pooler and not getattr(model, "pooler", None):
        converted.notes.append("left out: the pooler")
        state = {name: value for name, value in state.items() if name not in pooler}
    # The names of a model without a head lack the prefix.
    prefix = f"{model.base_model_prefix}." if bare else ""
    known = model.state_dict()
    theirs = to_theirs(state, architecture.rules, [f"{prefix}{name}" for name in known])
    theirs = {name.removeprefix(prefix): value for name, value in theirs.items()}
    if family.is_tied(converted.settings):
        # An output layer may be the embeddings themselves.
        output = state.get(family.output)
        theirs = {name: v for name, v in theirs.items() if v is not output or name in known}
    if found := differences(theirs, known):
        raise CheckpointError(f"the model has no counterpart there; parameters: {found}.")
    model.load_state_dict(theirs)
    if kind == "tupe" and family is CAUSAL:
        unscaled = converted.settings.get("no_scale_embedding")
        model.config.embedding_scale = 1.0 if unscaled else math.sqrt(model.config.hidden_size)
    return model


def _adapt(state: dict[str, Tensor], model: Any, architecture: Architecture) -> None:
    """The tables of BERT and RoBERTa, which hold other rows there."""
    if architecture.types:
        empty = torch.zeros(model.config.type_vocab_size, model.config.hidden_size)
        state.setdefault(TOKEN_TYPES, empty)
    if architecture.first_position is not None:
        state[POSITIONS] = state[POSITIONS][2 - architecture.first_position :]


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
    more = architecture.derived_there(given)
    more["type_vocab_size"] = given.get("type_vocab_size") or architecture.types
    there = transformers.AutoConfig.for_model(kind)
    given |= {n: value for n, value in converted.kept.items() if head or n != PROBLEM}
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


def class_of(converted: Converted, head: str | None) -> Any:
    """The class of transformers that builds and loads such models."""
    if converted.writes_features(head):
        return library().AutoModel
    language_model = "CausalLM" if converted.family is CAUSAL else "MaskedLM"
    task = task_of(converted.state, head) if head else language_model
    return getattr(library(), f"AutoModelFor{task}")
