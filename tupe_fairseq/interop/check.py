"""Comparison of a converted model with the model at the other end: outputs, texts and classes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from fairseq.models import MODEL_REGISTRY
from torch import Tensor

from ..errors import CheckpointError
from .classes import library
from .conversion import Conversion, Forward
from .dictionaries import read_labels
from .families import CAUSAL
from .models import Converted
from .vocabularies import has_tokenizer

#: Largest difference of outputs in fp32, relative to the largest.
TOLERANCE = 1e-5
#: Texts of one and of two sentences, whose ids are compared.
TEXTS = (("The cafés of Zürich: 12 naïve QUESTIONS?!",), ("It's Éva's", "Two of THEM."), ("",))
#: Texts -> their ids.
Encode = Callable[[tuple[str, ...]], list[int]]


def batch(vocabulary: int, length: int) -> Tensor:
    """Random ids of three sentences, 3×T: full length, half of it and two tokens, padded.

    The first has </s> in its middle, after which token types change.
    """
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(4, vocabulary, (3, length), generator=generator)
    tokens[0, length // 2] = 2
    tokens[:, 0] = 0
    for row, end in ((1, length // 2), (2, min(2, length))):
        tokens[row, max(end, 1) :] = 1
    return tokens


def token_types(tokens: Tensor) -> Tensor:
    """Types of ids of fairseq's, B×T: 0 up to the first </s>, then 1."""
    ends = tokens.eq(2)
    return (ends.cumsum(1) - ends.long()).clamp(max=1)


def outputs_of(model: Any, head: str | None, features: bool = False) -> Forward:
    """The logits of a model of fairseq's or of its classification head, or its features."""
    given = {"classification_head_name": head} if head else {"features_only": features}
    return lambda tokens: model(tokens, **given)[0]


@torch.no_grad()
def largest_difference(actual: Forward, expected: Forward, vocabulary: int, longest: int) -> float:
    """Of the outputs of two models, relative to the largest.

    The texts are random, padded and of several lengths, at most `longest` tokens.
    """
    pairs = []
    for length in (2, 7, 17, 128):
        tokens = batch(vocabulary, min(length, longest))
        outputs = []
        for forward in (actual, expected):
            outputs.append(forward(tokens))
        pair = torch.stack(outputs).double()
        pairs.append((pair[:, tokens.ne(1)] if pair.dim() == 4 else pair).flatten(1))
    found, wanted = torch.cat(pairs, 1)
    return ((found - wanted).abs().max() / wanted.abs().max().clamp(min=1e-9)).item()


class Side:
    """A model at one end of a conversion.

    Args:
        path: of the model.
        conversion: of its format; None for a directory of this package.
        converted: the model between the two ends.
        lower_case: whether the other end lowercases texts.
    """

    def __init__(
        self, path: Path, conversion: Conversion | None, converted: Converted, lower_case: bool
    ):
        self.path, self.conversion, self.converted = path, conversion, converted
        self.lower_case = lower_case
        if conversion is None:
            self.hub: Any = MODEL_REGISTRY[converted.family.model].from_pretrained(path)

    def forward(self, head: str | None) -> Forward:
        """Ids of fairseq's -> outputs."""
        if self.conversion is not None:
            assert self.conversion.outputs is not None
            return self.conversion.outputs(self.path, self.converted, head)
        (model,) = getattr(self.hub, "models", None) or [self.hub.model]
        return outputs_of(model, head, self.converted.writes_features(head))

    def encode(self) -> Encode | None:
        """The tokenizer, by ids of transformers; None where there is none."""
        causal = self.converted.family is CAUSAL
        if self.conversion is None:
            order = self.converted.order or range(len(self.hub.task.source_dictionary))
            return None if self.hub.bpe is None else lambda texts: self._by_hub(texts, order)
        if not has_tokenizer(self.path):
            return None
        auto = library().AutoTokenizer
        tokenizer = auto.from_pretrained(str(self.path), trust_remote_code=False)
        # fairseq ends a text of a language model by the symbol that begins it here.
        return lambda texts: tokenizer(*texts)["input_ids"][causal:]

    def _by_hub(self, texts: tuple[str, ...], order: Any) -> list[int]:
        texts = tuple(text.lower() for text in texts) if self.lower_case else texts
        if self.converted.family is CAUSAL:
            return self.hub.encode(*texts).tolist()[:-1]
        return [order[i] for i in self.hub.encode(*texts).tolist()]

    def labels(self) -> list[str]:
        """Names of the classes by number."""
        if self.conversion is None:
            return read_labels(self.path / "dict.txt", self.path)
        path = self.path / "config.json"
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return [str(label) for _, label in sorted(found.get("id2label", {}).items())]


def check(ends: tuple[Side, Side], head: str | None) -> list[str]:
    """Compare two models: ids of some texts, names of classes, and outputs but at padding.

    With a classification `head`, the logits of that head are compared, and features where there
    is no trained head.

    Returns:
        Lines of a report.

    Raises:
        CheckpointError: something differs.
    """
    converted = ends[0].converted
    report = [_compare_texts(ends, converted.family is CAUSAL)]
    labels = [end.labels() for end in ends]
    if head and all(labels):
        if labels[0] != labels[1]:
            raise CheckpointError(f"the names of classes are {labels[1]} and not {labels[0]}.")
        report.append(f"names of classes: {', '.join(labels[0])}")
    if converted.not_comparable:
        return [*report, f"not compared: {converted.not_comparable}"]
    rows, longest = converted.family.embeddings, converted.settings[converted.family.longest]
    expected, actual = (end.forward(head) for end in ends)
    difference = largest_difference(actual, expected, len(converted.state[rows]), longest)
    name = "logits of the head" if head else "logits"
    name = "features" if converted.writes_features(head) else name
    line = f"{name}: largest difference {difference:.1e} of the largest"
    # NaN must fail too.
    if not difference <= TOLERANCE:
        raise CheckpointError(f"the converted model gives other outputs than its source: {line}.")
    return [*report, line]


def _compare_texts(ends: tuple[Side, Side], causal: bool) -> str:
    """The ids of some texts by both tokenizers."""
    encoders = [end.encode() for end in ends]
    if None in encoders:
        return "ids of texts are not compared: one side has no tokenizer"
    texts = [each for each in TEXTS if len(each) == 1 or not causal]
    for each in texts:
        ids = [encode(each) for encode in encoders if encode]
        if ids[0] != ids[1]:
            raise CheckpointError(f"the tokenizers give {each} the ids {ids[1]} and not {ids[0]}.")
    return f"ids of {len(texts)} texts: equal"
