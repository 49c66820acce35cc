"""Models of transformers, built by the tables of `architectures/`."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..base.errors import CheckpointError, ConfigurationError
from ..base.extras import import_extra
from ..base.options import declared_options
from ..fairseq.checkpoints.mismatch import differences
from ..position import POSITION_ENCODINGS
from ..transformer.layer_options import LayerOptions
from .architectures import ARCHITECTURES, Architecture
from .architectures.base import MODEL_TYPE
from .architectures.bert import BERT, ROBERTA
from .carried import LABELS
from .keys import join_projections, to_theirs
from .labels import label_settings
from .models import (
    ANSWERS,
    CROSS_ENCODER,
    HEADS,
    OUTPUT,
    POOLER,
    POSITIONS,
    SENTENCES,
    TOKEN_TYPES,
    Converted,
    building_model,
    task_of,
    with_head,
)

#: The setting that names the loss of a classification head.
PROBLEM = "problem_type"
#: Models of RoBERTa's form, which are written as the same kind again.
RELATIVES = {each.model_type: each for each in ARCHITECTURES if MODEL_TYPE in each.kept}
#: What a user can set of layers.
LAYER = declared_options(LayerOptions)


def library() -> Any:
    """transformers, whose Auto classes know the models of this package.

    Raises:
        UsageError: it is not installed.
    """
    transformers = import_extra("transformers", "hf")
    from .. import huggingface  # noqa: F401

    return transformers


def to_transformers(converted: Converted, kind: str, head: str | None) -> Any:
    """The model of transformers whose model_type is `kind`, with this head, if there is one.

    Raises:
        UsageError: the model has no counterpart, or no such head.
    """
    written = {each.model_type: each for each in ARCHITECTURES}
    if kind not in written:
        raise ConfigurationError(
            f"--classes is {kind!r}, but must be one of {', '.join(written)}."
        )
    architecture = written[kind]
    state = with_head(converted, head)
    settings = converted.settings | _biases(state, architecture, converted.settings)
    model = _empty(converted, settings, architecture, head)
    _adapt(state, model, architecture)
    bare = converted.writes_features(head)
    pooler = [name for name in state if name.startswith(POOLER)]
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
    if converted.settings["tie_word_embeddings"]:
        # An output layer may be the embeddings themselves.
        output = state.get(OUTPUT)
        theirs = {name: v for name, v in theirs.items() if v is not output or name in known}
    if settings.get("norm_bias") and not converted.settings.get("norm_bias"):
        # The bias of the head's norm asks for one in all norms, where zeros are as none.
        missing = [name for name in known if name.endswith("norm.bias") and name not in theirs]
        theirs |= {name: torch.zeros_like(known[name]) for name in missing}
    if problems := differences(theirs, known):
        way_out = "" if kind == "tupe" else ": use --classes tupe"
        raise CheckpointError(
            f"transformers' {kind} has no such model{way_out}; parameters: {problems}."
        )
    model.load_state_dict(theirs)
    return model


def _adapt(state: dict[str, Tensor], model: Any, architecture: Architecture) -> None:
    """The tables of BERT and RoBERTa, which hold other rows there."""
    if architecture.types:
        empty = torch.zeros(model.config.type_vocab_size, model.config.hidden_size)
        state.setdefault(TOKEN_TYPES, empty)
    if architecture.first_position is not None:
        state[POSITIONS] = state[POSITIONS][2 - architecture.first_position :]
    if architecture.joined:
        join_projections(state)


def _biases(
    state: dict[str, Tensor], architecture: Architecture, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Which biases of heads there are; those without effect are removed from `state`."""
    there: dict[str, Any] = {}
    present = {name: flag for name, flag in architecture.biases.items() if name in state}
    for name, flag in present.items():
        known = there.get(flag) or settings.get(flag)
        there[flag] = bool(known or state[name].any())
    for name, flag in present.items():
        if not there[flag]:
            del state[name]
    return there


def default_classes(converted: Converted) -> str:
    """The classes that are written without --classes: RoBERTa's or BERT's, if they fit."""
    settings = converted.settings
    # RoBERTa's positions begin at the id of padding.
    stock = ROBERTA if settings["pad_token_id"] == 1 else BERT
    stock = RELATIVES.get(settings.get(MODEL_TYPE, ""), stock)
    usual = all(settings.get(each.name, each.default) == each.default for each in LAYER)
    return stock.model_type if usual and not unsupported(settings, stock) else "tupe"


def unsupported(settings: Mapping[str, Any], architecture: Architecture) -> str:
    """Which setting the classes of transformers do not have, or an empty string."""
    known = {**_options(settings), **settings}
    if "embedding_scale" in known:
        # None stands for the encoding's own.
        encoding = POSITION_ENCODINGS[settings["position_encoding"]]
        scale = encoding.token_scale(settings["hidden_size"], settings["embedding_scale"])
        known["embedding_scale"] = scale
    for name, value in {**architecture.settings, **architecture.required}.items():
        if known.get(name, value) != value:
            return (
                f"transformers' {architecture.model_type} supports {name} {value!r} only, but the "
                f"model's is {known[name]!r}"
            )
    return ""


def _options(settings: Mapping[str, Any]) -> dict[str, Any]:
    """All options of the encoding, with their defaults."""
    defaults = POSITION_ENCODINGS[settings["position_encoding"]].defaults()
    return {**defaults, **settings["position_options"]}


def _empty(
    converted: Converted,
    settings: Mapping[str, Any],
    architecture: Architecture,
    head: str | None,
) -> Any:
    """The model of transformers with its own initial parameters."""
    transformers = library()
    kind = architecture.model_type
    settings = {**settings, **_of_head(converted, head)}
    if reason := unsupported(settings, architecture):
        raise CheckpointError(f"{reason}: use --classes tupe.")
    more = architecture.derived_there({**settings, "position_options": _options(settings)})
    default = transformers.AutoConfig.for_model(kind)
    if hasattr(default, "type_vocab_size"):
        more["type_vocab_size"] = settings.get("type_vocab_size") or architecture.types
    more |= {name: settings[name] for name in CROSS_ENCODER if head and settings.get(name)}
    settings.pop(MODEL_TYPE, None)
    settings = {name: value for name, value in settings.items() if hasattr(default, name)} | more
    settings["max_position_embeddings"] += architecture.first_position or 0
    with building_model(f"max_position_embeddings {settings['max_position_embeddings']}"):
        config = transformers.AutoConfig.for_model(kind, **settings)
        return class_of(converted, head).from_config(config).eval()


def _of_head(converted: Converted, head: str | None) -> dict[str, Any]:
    """Settings of a classification head: its classes and their names."""
    if not head:
        return {PROBLEM: None}
    state = converted.state
    labels = converted.labels
    count = len(state[f"{HEADS}{head}.out_proj.weight"])
    task = task_of(state, head)
    settings: dict[str, Any] = {"num_labels": count}
    if count == len(labels):
        settings |= label_settings(labels)
    elif count > 1 and task != ANSWERS:
        converted.notes.append(
            f"no names of the {count} classes, so they are LABEL_0, ...: copy the "
            f"{LABELS} of the data into the directory"
        )
    if task == SENTENCES:
        kind = "regression" if count == 1 else "single_label_classification"
        settings[PROBLEM] = converted.settings.get(PROBLEM) or kind
    return settings


def class_of(converted: Converted, head: str | None) -> Any:
    """The class of transformers that builds and loads such models."""
    if converted.writes_features(head):
        return library().AutoModel
    task = task_of(converted.state, head) if head else "MaskedLM"
    return getattr(library(), f"AutoModelFor{task}")
