"""Whether a converted model computes what its source computes: the forward comparison."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from ..errors import UsageError
from ..hub.roberta import load_directory

#: How far hidden states and logits may lie apart, of their largest entry, in fp32.
TOLERANCE = 1e-5


def batch(vocabulary: int, max_positions: int, padding: int = 1, seed: int = 0) -> Tensor:
    """Three sentences of random words, 3×T: full length, half, and one word, padded."""
    generator = torch.Generator().manual_seed(seed)
    length = min(max_positions, 128)
    tokens = torch.randint(4, vocabulary, (3, length), generator=generator)
    tokens[:, 0] = 0
    for row, end in ((1, length // 2), (2, min(2, length))):
        tokens[row, max(end, 1) :] = padding
    return tokens


def compare(name: str, actual: Tensor, expected: Tensor) -> str:
    """One line of the report.

    Raises:
        UsageError: they lie further apart than the tolerance.
    """
    largest = max(expected.abs().max().item(), 1e-9)
    off = (actual.double() - expected.double()).abs().max().item() / largest
    line = f"{name} {tuple(expected.shape)}: off by {off:.1e} of the largest entry"
    if not off <= TOLERANCE:
        raise UsageError(f"the converted model computes something else: {line}.")
    return line


@torch.no_grad()
def check_directory(
    directory: str | Path, source: Callable[[Tensor], tuple[Tensor, Tensor]]
) -> list[str]:
    """Load a directory as its users will and compare with the source, on words, not on padding.

    Args:
        directory: of a `tupe_roberta` model.
        source: ids B×T -> hidden states B×T×C and logits B×T×V.

    Returns:
        Lines of a report.

    Raises:
        UsageError: they differ.
    """
    model = load_directory(directory).model.eval()
    padding = model.encoder.sentence_encoder.padding_idx
    tokens = batch(len(model.encoder.dictionary), model.max_positions(), padding)
    words = tokens.ne(padding)
    hidden, logits = source(tokens)
    return [
        compare("hidden states", model(tokens, features_only=True)[0][words], hidden[words]),
        compare("logits", model(tokens)[0][words], logits[words]),
    ]
