"""How near the vectors of a way are to those of transformers, and to its own of texts alone."""

from typing import Any

import torch
from torch import Tensor

from .encoders import Batch, Run

#: Texts of a table that are also run alone.
ALONE = 32


def vectors(run: Run, batches: list[Batch]) -> Tensor:
    """The mean of the features of each text, texts×C, in fp64."""
    found = []
    for batch in batches:
        mask = batch["attention_mask"].bool()
        for features, shown in zip(run(batch), mask, strict=True):
            found.append(features[shown].double().mean(0))
    return torch.stack(found)


def alone(batches: list[Batch]) -> list[Batch]:
    """The first texts, without padding, each in a batch of its own."""
    rows = []
    for batch in batches:
        for row, length in enumerate(batch["attention_mask"].sum(1)):
            rows.append({name: value[row : row + 1, :length] for name, value in batch.items()})
    return rows[:ALONE]


def measure(run: Run, batches: list[Batch], expected: Tensor) -> dict[str, Any]:
    """Mean and least cosine to the vectors of transformers, and of texts alone to in a batch."""
    found = vectors(run, batches)
    cosines = {"source": torch.cosine_similarity(found, expected)}
    if any(len(batch["input_ids"]) > 1 for batch in batches):
        singles = vectors(run, alone(batches))
        cosines["alone"] = torch.cosine_similarity(singles, found[: len(singles)])
    return {name: [float(c.mean()), float(c.min())] for name, c in cosines.items()}
