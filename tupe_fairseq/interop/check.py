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


def batch(vocabulary: int, max_positions: int, padding: int = 1) -> Tensor:
    """Random ids of three sentences, 3×T: full length, half of it and two tokens, padded."""
    generator = torch.Generator().manual_seed(0)
    length = min(max_positions, 128)
    tokens = torch.randint(4, vocabulary, (3, length), generator=generator)
    tokens[:, 0] = 0
    for row, end in ((1, length // 2), (2, min(2, length))):
        tokens[row, max(end, 1) :] = padding
    return tokens


def outputs_of(model: Any, head: str | None) -> Forward:
    """The logits of a model of fairseq's, or of its classification head."""
    given = {"classification_head_name": head} if head else {}
    return lambda tokens: model(tokens, **given)[0]


@torch.no_grad()
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
    (model,), dictionary = getattr(hub, "models", None) or [hub.model], hub.task.source_dictionary
    tokens = batch(len(dictionary), model.max_positions(), dictionary.pad())
    seen = tokens.ne(dictionary.pad())
    actual, wanted = (
        logits[seen] if logits.dim() == 3 else logits
        for logits in (outputs_of(model, head)(tokens), other(tokens))
    )
    largest = max(wanted.abs().max().item(), 1e-9)
    difference = (actual.double() - wanted.double()).abs().max().item() / largest
    name = "logits of the head" if head else "logits"
    line = f"{name} {tuple(wanted.shape)}: largest difference {difference:.1e} of the largest"
    # NaN must fail too.
    if not difference <= TOLERANCE:
        raise CheckpointError(f"the converted model gives other outputs than its source: {line}.")
    return line
