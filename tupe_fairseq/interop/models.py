"""Models between two formats: settings, parameters and dictionary by the names of this package."""

import copy
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
from ..errors import CheckpointError, ConfigurationError, UsageError
from ..position import POSITION_ENCODINGS
from .families import MASKED, Family

ENCODER, EMBED_TOKENS = MASKED.stack, MASKED.embeddings
POSITIONS, LM_HEAD = f"{ENCODER}embed_positions.weight", "encoder.lm_head."
TOKEN_TYPES = f"{ENCODER}embed_token_types.weight"
HEADS = "classification_heads."
#: The name of a classification head that was trained in transformers; fairseq's default.
HEAD = "sentence_classification_head"
#: What heads do, as transformers names it, and the names of heads that classify tokens.
SENTENCES, TOKENS, ANSWERS = "SequenceClassification", "TokenClassification", "QuestionAnswering"
TOKEN_HEADS = {TOKENS: "token_classification_head", ANSWERS: "question_answering_head"}
#: The head with BERT's pooler, whose second layer is the identity.
POOLER = "pooler"


@dataclass
class Converted:
    """A model that is not yet in a directory.

    Attributes:
        settings: arguments of the model by name.
        state: its parameters.
        dictionary: its dictionary.
        notes: what the user should know about the conversion.
        not_comparable: why `--check` cannot compare it with its source; empty if it can.
        folder: the directory that it was read from, which may hold files of fairseq's tokenizers.
        head: the classification head that the source has in place of a language modeling head.
        family: the kind of model.
        order: the row of each id in the source's embeddings; empty: they have the same order.
        tokenizer: files of a tokenizer of transformers, by name, whose ids are those of `order`.
        nameless: why tokens have no names, so that there is no dict.txt; empty if they have.
        labels: names of the classes of the head, by number; empty: not known.
        kept: settings of the source without a counterpart here. "headless" is true where the
            language modeling head is untrained.
        files: further files by name, of sentence-transformers.
        training: what the source records of it: `data`, `updates` and `validation`, where known.
    """

    settings: dict[str, Any]
    state: dict[str, Tensor]
    dictionary: Dictionary
    notes: list[str] = field(default_factory=list)
    not_comparable: str = ""
    folder: Path | None = None
    head: str | None = None
    family: Family = MASKED
    order: list[int] = field(default_factory=list)
    tokenizer: dict[str, bytes] = field(default_factory=dict)
    nameless: str = ""
    labels: list[str] = field(default_factory=list)
    kept: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)

    def writes_features(self, head: str | None) -> bool:
        """Whether other formats get no head: none is asked for, and there is no trained one."""
        return head is None and bool(self.kept.get("headless"))


def arguments(settings: dict[str, Any], family: Family = MASKED) -> Namespace:
    """All of fairseq's arguments for a model with these settings."""
    flags = ["", "--task", family.task, "--criterion", family.criterion, "--arch", family.model]
    flags += ["--optimizer", "adam"]
    found = options.parse_args_and_arch(options.get_training_parser(), flags)
    vars(found).update(family.complete(settings))
    return found


def sizes(
    state: Mapping[str, Tensor], source: object, kind: str, family: Family = MASKED
) -> dict[str, Any]:
    """Settings that the parameters show, whatever `source`, a checkpoint of `kind`, records.

    Raises:
        CheckpointError: token embeddings or layer 0 are missing, or no matrices.
    """
    layers = f"{family.stack}layers."
    numbers = {n.removeprefix(layers).partition(".")[0] for n in state if n.startswith(layers)}
    tokens = matrix(state, family.embeddings, source, kind)
    inner = matrix(state, f"{layers}0.fc1.weight", source, kind)
    name, value = family.ties
    return {
        f"{family.side}_layers": len(numbers),
        f"{family.side}_embed_dim": tokens.size(1),
        f"{family.side}_ffn_embed_dim": len(inner),
        name: torch.equal(state.get(family.output, tokens), tokens) == value,
    }


def matrix(state: Mapping[str, Tensor], name: str, source: object, kind: str) -> Tensor:
    """The parameter of this name, which must be a matrix.

    Raises:
        CheckpointError: it is missing or has another number of dimensions.
    """
    found = state.get(name)
    if found is None or found.dim() != 2:
        raise CheckpointError(f"{source} is not a {kind} checkpoint: it has no matrix {name}.")
    return found


def head_names(state: Mapping[str, Tensor]) -> list[str]:
    """Names of the classification heads in a state dict."""
    return sorted({name.split(".")[1] for name in state if name.startswith(HEADS)})


def task_of(state: Mapping[str, Tensor], head: str) -> str:
    """What a head does: one that classifies tokens has one layer."""
    if f"{HEADS}{head}.out_proj.weight" not in state or f"{HEADS}{head}.dense.weight" in state:
        return SENTENCES
    return ANSWERS if head == TOKEN_HEADS[ANSWERS] else TOKENS


def register_heads(model: RobertaModel, state: Mapping[str, Tensor]) -> None:
    """Register the classification heads of a state dict with a model, as fairseq does."""
    model.args.load_checkpoint_heads = True
    model.upgrade_state_dict({n: value for n, value in state.items() if n.startswith(HEADS)})


def build(
    settings: dict[str, Any],
    dictionary: Dictionary,
    state: Mapping[str, Tensor],
    family: Family = MASKED,
) -> BaseFairseqModel:
    """A model with these settings and the heads of `state`, initialised, in eval mode.

    Raises:
        UsageError: a setting is invalid, or there is not enough memory.
    """
    given = arguments(settings, family)
    # The task may add a symbol.
    task = tasks.TASK_REGISTRY[family.task](given, copy.deepcopy(dictionary))
    with building_model(f"{family.longest} {settings[family.longest]}"):
        model = task.build_model(given).eval()
        if family is MASKED:
            register_heads(model, state)
    return model


def options_of(settings: Mapping[str, Any]) -> set[str]:
    """Names of the options of a model's position encoding."""
    return set(POSITION_ENCODINGS[settings["position_encoding"]].defaults())


def with_recorded(settings: Mapping[str, Any], family: Family) -> dict[str, Any]:
    """The settings with the options that a checkpoint records, as the trained length."""
    encoding = POSITION_ENCODINGS[settings["position_encoding"]]
    given = {**family.defaults, **settings}
    options = {name: given.get(name, value) for name, value in encoding.defaults().items()}
    return {**settings, **encoding.recorded(options, settings[family.longest])}


@contextmanager
def building_model(longest: str) -> Iterator[None]:
    """Explain why a model cannot be built inside the block: settings have any type and size.

    `longest` is the setting that most often needs too much memory, with its value.

    Raises:
        CheckpointError: in place of an error that is not a UsageError.
    """
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise CheckpointError(
            f"no model can be built with {longest} and the other settings: {reason}."
        ) from error


def with_head(converted: Converted, head: str | None) -> dict[str, Tensor]:
    """The parameters with one head: that for classification under the name `HEAD`, or the other.

    Raises:
        ConfigurationError: there is no such head.
    """
    state, heads = converted.state, head_names(converted.state)
    if head and head not in heads:
        known = ", ".join(heads) or "none"
        raise ConfigurationError(f"unknown --head {head!r}; the model's heads are: {known}.")
    bare = converted.writes_features(head)
    if left_out := [name for name in heads if name not in (head, POOLER)]:
        converted.notes.append(f"left out, classification heads: {', '.join(left_out)}")
    unused = (HEADS, converted.family.version, *([LM_HEAD] if head or bare else []))
    kept = {name: value for name, value in state.items() if not name.startswith(unused)}
    own = f"{HEADS}{head}."
    if bare:
        return kept | {n: v for n, v in state.items() if n.startswith(f"{HEADS}{POOLER}.dense.")}
    return kept | {
        f"{HEADS}{HEAD}.{name.removeprefix(own)}": value
        for name, value in state.items()
        if name.startswith(own)
    }


def imported(
    settings: dict[str, Any],
    state: dict[str, Tensor],
    dictionary: Dictionary,
    source: object,
    kind: str,
    family: Family = MASKED,
    scale: Any = None,
) -> Converted:
    """A model that was read, after a comparison with what fairseq builds.

    A masked language model without a language modeling head gets a new one. If `scale` is not
    None, the source multiplies token embeddings by it.

    Raises:
        CheckpointError: names or shapes of parameters differ, or the scale.
    """
    model = build(settings, dictionary, state, family)
    own, here = model.state_dict(), model.get_submodule(family.stack[:-1]).embed_scale
    if scale is not None and (type(scale) not in (int, float) or abs(scale / here - 1) > 1e-6):
        raise CheckpointError(
            f"invalid embedding_scale in {source}: {scale!r}; fairseq's model multiplies "
            f"embeddings by {here}."
        )
    converted = Converted(settings, state, dictionary, family=family)
    if family is MASKED and f"{LM_HEAD}dense.weight" not in state:
        converted.notes = ["the source has no head for masked tokens: the new one is untrained"]
        converted.head = next((name for name in head_names(state) if name != POOLER), None)
        converted.kept["headless"] = True
        head = {name: value for name, value in own.items() if name.startswith(LM_HEAD)}
        state = head | {family.output: state[family.embeddings]} | state
    converted.state = state | {family.version: own[family.version]}
    if found := differences(converted.state, own):
        raise CheckpointError(f"{source} is not a {kind} checkpoint; parameters: {found}.")
    return converted
