"""Comparison of a converted model's outputs with those of the model at the other end."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import CheckpointError
from ..hub.generator import load_generator
from ..hub.roberta import load_directory
from .conversion import Forward
from .families import CAUSAL, MASKED, Family

#: Largest difference of outputs in fp32, relative to their largest entry.
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


def outputs_of(model: Any, head: str | None, family: Family = MASKED) -> Forward:
    """What is compared, of a model of fairseq's."""
    if family is CAUSAL:
        return lambda tokens: (model.decoder.extract_features(tokens)[0], model(tokens)[0])
    if head:
        return lambda tokens: (model(tokens, classification_head_name=head)[0],)
    return lambda tokens: (model(tokens, features_only=True)[0], model(tokens)[0])


@torch.no_grad()
def check_directory(
    directory: str | Path, other: Forward, head: str | None = None, family: Family = MASKED
) -> list[str]:
    """Load a directory as users do and compare the model's outputs, except at padding.

    `other` is the model at the other end of the conversion. With a classification `head`, the
    logits of that head are compared. Returns the lines of a report.

    Raises:
        CheckpointError: the outputs differ.
    """
    if family is CAUSAL:
        model = load_generator(directory).models[0]
        dictionary = model.decoder.dictionary
    else:
        model = load_directory(directory).model.eval()
        dictionary = model.encoder.dictionary
    tokens = batch(len(dictionary), model.max_positions(), dictionary.pad())
    seen, lines = tokens.ne(dictionary.pad()), []
    found, expected = outputs_of(model, head, family)(tokens), other(tokens)
    names = ("logits of the head",) if head else ("hidden states", "logits")
    # Some formats return logits only.
    count = len(expected)
    for name, *pair in zip(names[-count:], found[-count:], expected, strict=True):
        actual, wanted = (x[seen] if x.dim() == 3 else x for x in pair)
        largest = max(wanted.abs().max().item(), 1e-9)
        difference = (actual.double() - wanted.double()).abs().max().item() / largest
        shape = tuple(wanted.shape)
        line = f"{name} {shape}: largest difference {difference:.1e} of the largest entry"
        # NaN must fail too.
        if not difference <= TOLERANCE:
            raise CheckpointError(
                f"the converted model gives other outputs than its source: {line}."
            )
        lines.append(line)
    return lines
