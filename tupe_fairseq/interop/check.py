"""Comparison of a converted model's outputs with those of the model at the other end."""

from pathlib import Path
from typing import Any

import torch
from fairseq.models import MODEL_REGISTRY
from torch import Tensor

from ..errors import CheckpointError
from .conversion import Forward
from .families import MASKED, Family

#: Largest difference of logits in fp32, relative to the largest logit.
TOLERANCE = 1e-5


def batch(vocabulary: int, length: int) -> Tensor:
    """Random ids of three sentences, 3×T: full length, half of it and two tokens, padded."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(4, vocabulary, (3, length), generator=generator)
    tokens[:, 0] = 0
    for row, end in ((1, length // 2), (2, min(2, length))):
        tokens[row, max(end, 1) :] = 1
    return tokens


def outputs_of(model: Any, head: str | None) -> Forward:
    """The logits of a model of fairseq's, or of its classification head."""
    given = {"classification_head_name": head} if head else {}
    return lambda tokens: model(tokens, **given)[0]


@torch.no_grad()
def largest_difference(actual: Forward, expected: Forward, vocabulary: int, longest: int) -> float:
    """Of the logits of two models, relative to the largest logit.

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


def check_directory(
    directory: str | Path, other: Forward, head: str | None = None, family: Family = MASKED
) -> str:
    """Load a directory as users do and compare the model's logits, except at padding.

    `other` is the model at the other end of the conversion. With a classification `head`, the
    logits of that head are compared. Returns the line of a report.

    Raises:
        CheckpointError: the logits differ.
    """
    hub = MODEL_REGISTRY[family.model].from_pretrained(directory)
    (model,) = getattr(hub, "models", None) or [hub.model]
    symbols, longest = len(hub.task.source_dictionary), model.max_positions()
    difference = largest_difference(outputs_of(model, head), other, symbols, longest)
    name = "logits of the head" if head else "logits"
    line = f"{name}: largest difference {difference:.1e} of the largest"
    # NaN must fail too.
    if not difference <= TOLERANCE:
        raise CheckpointError(f"the converted model gives other outputs than its source: {line}.")
    return line
