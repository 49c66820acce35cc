"""`Converted`: the one form between two formats, which each reads into and writes from."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from ..base.errors import CheckpointError, ConfigurationError, UsageError
from ..position import POSITION_ENCODINGS
from .pooling import Pooling

#: Names of parameters, which are those of `TupeForMaskedLM`.
EMBED_TOKENS = "tupe.embed_tokens.weight"
ENCODER = "tupe.encoder."
LM_HEAD = "lm_head."
OUTPUT = f"{LM_HEAD}decoder.weight"
POSITIONS = f"{ENCODER}embed_positions.weight"
TOKEN_TYPES = f"{ENCODER}embed_token_types.weight"
#: Classification heads, `heads.NAME.`.
HEADS = "heads."
#: The one that a class of transformers has.
ONE_HEAD = "head."
#: The pooler of BERT.
POOLER = "pooler."
#: The name of a classification head that was trained in transformers; fairseq's default.
HEAD = "sentence_classification_head"
#: What heads do, as transformers names it.
SENTENCES = "SequenceClassification"
TOKENS = "TokenClassification"
ANSWERS = "QuestionAnswering"
#: The names of heads that classify tokens.
TOKEN_HEADS = {TOKENS: "token_classification_head", ANSWERS: "question_answering_head"}
#: Settings by which sentence-transformers' CrossEncoder chooses the function of a head's scores.
CROSS_ENCODER = ("sentence_transformers", "sbert_ce_default_activation_function")


class OwnTokenizer(Protocol):
    """A tokenizer that a format can read and from which that of transformers is made."""

    def write(self, out: Path, longest: int, lower_case: bool | None) -> str:
        """Write that of transformers in a folder, and return a note for the user, or ""."""


@dataclass
class Converted:
    """A model that is not yet in a directory.

    Attributes:
        settings: by the names of `TupeConfig`; further ones are of transformers.
        state: parameters by the names above. A model without a trained language modeling head has
            none.
        source: the directory that it was read from, or that of the checkpoint.
        head: the classification head that is written by default.
        pooling: set by a `--to` that writes features or embeddings in place of a head.
        labels: names of the classes of the head, by number; empty: not known.
        tokenizer: files of a tokenizer of transformers, by name.
        own_tokenizer: fairseq's, of which that tokenizer is made where `tokenizer` is empty.
        files: further files by name, which are carried unchanged.
        training: what the source records of it: `data`, `updates`, `validation` and `origin`, the
            model that it began with, where known.
        notes: what the user should know about the conversion.
        not_comparable: why `--check` cannot compare it with its source; empty if it can.
    """

    settings: dict[str, Any]
    state: dict[str, Tensor]
    source: Path = Path()
    head: str | None = None
    pooling: Pooling | None = None
    labels: list[str] = field(default_factory=list)
    tokenizer: dict[str, bytes] = field(default_factory=dict)
    own_tokenizer: OwnTokenizer | None = None
    files: dict[str, bytes] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    not_comparable: str = ""

    @property
    def has_types(self) -> bool:
        """Whether the tokens of a second text have another type."""
        return bool(self.settings.get("type_vocab_size", 0) > 1)

    @property
    def has_lm_head(self) -> bool:
        """Whether the language modeling head is trained."""
        return f"{LM_HEAD}dense.weight" in self.state

    def writes_features(self, head: str | None) -> bool:
        """Whether transformers' class has no head: none is requested, and none is trained."""
        return head is None and (self.pooling is not None or not self.has_lm_head)


def sizes(state: Mapping[str, Tensor], source: object, kind: str) -> dict[str, Any]:
    """Settings that the parameters show, whatever `source`, a checkpoint of `kind`, records.

    Raises:
        CheckpointError: token embeddings or layer 0 are missing, or no matrices.
    """
    layers = f"{ENCODER}layers."
    numbers = {n.removeprefix(layers).partition(".")[0] for n in state if n.startswith(layers)}
    tokens = matrix(state, EMBED_TOKENS, source, kind)
    return {
        "vocab_size": len(tokens),
        "hidden_size": tokens.size(1),
        "num_hidden_layers": len(numbers),
        "intermediate_size": matrix(state, f"{layers}0.fc2.weight", source, kind).size(1),
        "tie_word_embeddings": torch.equal(state.get(OUTPUT, tokens), tokens),
    }


def matrix(state: Mapping[str, Tensor], name: str, source: object, kind: str) -> Tensor:
    """The parameter of this name, which must be a matrix.

    Raises:
        CheckpointError: it is missing or has another number of dimensions.
    """
    value = state.get(name)
    if value is None or value.dim() != 2:
        raise CheckpointError(f"{source} is not a {kind} checkpoint: it has no matrix {name}.")
    return value


def head_names(state: Mapping[str, Tensor]) -> list[str]:
    """Names of the classification heads in a state dict."""
    return sorted({name.split(".")[1] for name in state if name.startswith(HEADS)})


def task_of(state: Mapping[str, Tensor], head: str) -> str:
    """What a head does, by its layers or its name."""
    prefix = f"{HEADS}{head}."
    task = ANSWERS if head == TOKEN_HEADS[ANSWERS] else TOKENS
    if f"{prefix}norm.weight" in state:
        # ModernBERT's heads all have the same layers.
        return task if head in TOKEN_HEADS.values() else SENTENCES
    one_layer = f"{prefix}out_proj.weight" in state and f"{prefix}dense.weight" not in state
    return task if one_layer else SENTENCES


def with_head(converted: Converted, head: str | None) -> dict[str, Tensor]:
    """The parameters with one head, `head.` for classification or that for language modeling.

    Raises:
        ConfigurationError: there is no such head.
    """
    state = converted.state
    heads = head_names(converted.state)
    if head and head not in heads:
        known = ", ".join(heads) or "none"
        raise ConfigurationError(f"unknown --head {head!r}; the model's heads are: {known}.")
    if left_out := [name for name in heads if name != head]:
        converted.notes.append(f"left out, classification heads: {', '.join(left_out)}")
    unused: tuple[str, ...] = (HEADS, LM_HEAD, POOLER) if head else (HEADS,)
    if converted.writes_features(head):
        unused = (HEADS, LM_HEAD)
    prefix = f"{HEADS}{head}."
    return {name: value for name, value in state.items() if not name.startswith(unused)} | {
        f"{ONE_HEAD}{name.removeprefix(prefix)}": value
        for name, value in state.items()
        if name.startswith(prefix)
    }


def encoding_options(settings: Mapping[str, Any]) -> set[str]:
    """Names of the options of a model's position encoding."""
    return set(POSITION_ENCODINGS[settings["position_encoding"]].defaults())


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
