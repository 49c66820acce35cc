"""Models of fairseq, built from settings, and parameters under other names."""

import io
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from fairseq import options, tasks
from fairseq.data import Dictionary
from fairseq.models import BaseFairseqModel
from fairseq.models.roberta import RobertaModel
from torch import Tensor

from ..checkpoints.mismatch import differences
from ..errors import CheckpointError, ConfigurationError
from ..position import POSITION_ENCODINGS
from .dictionaries import Entry, dictionary_text
from .families import MASKED, Family
from .keys import Table, to_theirs

ENCODER, EMBED_TOKENS, VERSION = MASKED.stack, MASKED.embeddings, MASKED.version
POSITIONS, LM_HEAD = f"{ENCODER}embed_positions.weight", "encoder.lm_head."
#: Settings of the same name in `tupe_fairseq.huggingface`, and their defaults.
REACH = {"attention_window": None, "global_every": 0, "extend_positions": None}


@dataclass
class Converted:
    """A model that is not yet in a directory.

    Attributes:
        settings: arguments of the model by name.
        state: its parameters.
        entries: its dictionary.
        notes: what the user should know about the conversion.
        not_comparable: why `--check` cannot compare it with its source; empty if it can.
        folder: the directory that it was read from, which may hold a tokenizer.
        head: the classification head that the source has in place of a language modeling head.
        family: the kind of model.
        files: texts of files that `write` adds, by name.
        order: the row of each id in the source's embeddings; empty: they have the same order.
    """

    settings: dict[str, Any]
    state: dict[str, Tensor]
    entries: list[Entry]
    notes: list[str] = field(default_factory=list)
    not_comparable: str = ""
    folder: Path | None = None
    head: str | None = None
    family: Family = MASKED
    files: dict[str, str] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)


def arguments(settings: dict[str, Any], family: Family = MASKED) -> Namespace:
    """All of fairseq's arguments for a model with these settings."""
    flags = ["", "--task", family.task, "--criterion", family.criterion, "--arch", family.model]
    flags += ["--optimizer", "adam"]
    found = options.parse_args_and_arch(options.get_training_parser(), flags)
    vars(found).update(family.complete(settings))
    return found


def head_names(state: Mapping[str, Tensor]) -> list[str]:
    """Names of the classification heads in a state dict."""
    return sorted({n.split(".")[1] for n in state if n.startswith("classification_heads.")})


def register_heads(model: RobertaModel, state: Mapping[str, Tensor]) -> None:
    """Register the classification heads of a state dict with a model, in their sizes."""
    for head in head_names(state):
        # out_proj before dense; 1 where one is missing.
        shapes = (
            state.get(f"classification_heads.{head}.{name}.weight", torch.zeros(1)).shape
            for name in ("out_proj", "dense")
        )
        model.register_classification_head(head, *(shape[0] if shape else 1 for shape in shapes))


def build(
    settings: dict[str, Any],
    entries: list[Entry],
    state: Mapping[str, Tensor],
    family: Family = MASKED,
) -> BaseFairseqModel:
    """A model with these settings and the heads of `state`, initialised, in eval mode.

    Raises:
        CheckpointError: there is not enough memory for it.
    """
    given = arguments(settings, family)
    dictionary = Dictionary()
    dictionary.add_from_file(io.StringIO(dictionary_text(entries)))
    task = tasks.TASK_REGISTRY[family.task](given, dictionary)
    try:
        model = task.build_model(given).eval()
    except RuntimeError as error:
        raise CheckpointError(
            f"the model cannot be built: {family.longest} {settings[family.longest]} or an option "
            "of its encoding needs too much memory."
        ) from error
    register_heads(model, state)
    return model


def options_of(settings: Mapping[str, Any]) -> set[str]:
    """Names of the options of a model's position encoding."""
    options = POSITION_ENCODINGS[settings["position_encoding"]].options()
    return {option.name for option in options}


def with_recorded(settings: Mapping[str, Any], family: Family) -> dict[str, Any]:
    """The settings with the options that a checkpoint records, as the trained length."""
    encoding = POSITION_ENCODINGS[settings["position_encoding"]]
    given = {**family.defaults, **settings}
    options = {
        option.name: given.get(option.name, option.default) for option in encoding.options()
    }
    return {**settings, **encoding.recorded(options, settings[family.longest])}


def known_settings(settings: Mapping[str, Any], family: Family) -> dict[str, Any]:
    """The settings that have a meaning for other formats."""
    names = (*family.settings.values(), *REACH, *options_of(settings), family.ties[0])
    given = {**family.defaults, **settings}
    return {n: given[n] for n in (*names, *family.own) if given.get(n) is not None}


def exported(
    converted: Converted, table: Table, head: str | None
) -> tuple[dict[str, Tensor], BaseFairseqModel]:
    """The parameters by another format's names, and a model with the same settings.

    With a classification `head`, the language modeling head and other heads are left out. So is
    an output layer that is tied to the embeddings.

    Raises:
        UsageError: the parameters do not fit the settings, or there is no such head.
    """
    family, settings, state = converted.family, converted.settings, converted.state
    heads = head_names(state)
    if head and head not in heads:
        known = ", ".join(heads) or "none"
        raise ConfigurationError(f"unknown --head {head!r}; the model's heads are: {known}.")
    model = build(known_settings(settings, family), converted.entries, state, family)
    if found := differences(state, model.state_dict()):
        raise CheckpointError(
            f"the model is not a {family.model} checkpoint; parameters: {found}."
        )
    if left_out := [name for name in heads if name != head]:
        converted.notes.append(f"left out, classification heads: {', '.join(left_out)}")
    unused = LM_HEAD if head else family.output if family.is_tied(settings) else "-"
    kept = {name: value for name, value in state.items() if not name.startswith(unused)}
    return to_theirs(kept, table), model


def imported(
    ours: dict[str, Tensor],
    settings: dict[str, Any],
    entries: list[Entry],
    source: object,
    kind: str,
    family: Family = MASKED,
    scale: Any = None,
) -> Converted:
    """A model from parameters by their names here, after a comparison with what fairseq builds.

    A masked language model without a language modeling head gets a new one. If `scale` is not
    None, the source multiplies token embeddings by it.

    Raises:
        CheckpointError: names, shapes or the scale differ.
    """
    model = build(settings, entries, ours, family)
    here = model.get_submodule(family.stack[:-1]).embed_scale
    if scale is not None and (type(scale) not in (int, float) or abs(scale / here - 1) > 1e-6):
        raise CheckpointError(
            f"invalid embedding_scale in {source}: {scale!r}; fairseq's model multiplies "
            f"embeddings by {here}."
        )
    own = model.state_dict()
    converted = Converted(settings, ours, entries, family=family)
    if family is MASKED and f"{LM_HEAD}dense.weight" not in ours:
        converted.notes = ["the source has no head for masked tokens: the new one is untrained"]
        converted.head = next(iter(head_names(ours)), None)
        converted.not_comparable = "" if converted.head else "the source has no head"
        head = {name: value for name, value in own.items() if name.startswith(LM_HEAD)}
        ours = head | {family.output: ours[family.embeddings]} | ours
    converted.state = ours | {family.version: own[family.version]}
    if found := differences(converted.state, own):
        raise CheckpointError(f"{source} is not a {kind} checkpoint; parameters: {found}.")
    return converted
