"""How far an encoder follows its source on held-out texts."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .encoders import Encoder, mean_features
from .texts import Texts, shuffled

#: Texts whose order is measured.
ORDERED = 256
#: Texts of a batch.
BATCH = 32


class Fidelity:
    """Measures an encoder against its source.

    - error: the squared error of token features over the variance of the source's, 0 at best
    - cosine: of the mean features of a text in both encoders, averaged over texts
    - gap: the mean cosine of a text and its shuffled words, minus that of the source
    - rank: the rank correlation of this cosine with that of the source, over texts

    gap and rank say whether the order of words is read as the source reads it.
    """

    def __init__(self, source: Encoder, texts: Texts):
        self.texts = texts
        rng = random.Random(0)
        # Of one word there is one order.
        ordered = [text for text in texts.held_out if len(text.split()) > 3][:ORDERED]
        self.ordered = ordered, [shuffled(text, rng) for text in ordered]
        self.features = [each for each, _ in self._run(source, texts.held_out)]
        self.means = self.mean_features(source, texts.held_out)
        self.cosines = self._cosines(source)
        every = torch.cat(self.features)
        self.variance = float((every - every.mean(0)).square().mean())

    def __call__(self, encoder: Encoder) -> dict[str, float]:
        """The four measures."""
        parts = zip(self._run(encoder, self.texts.held_out), self.features, strict=True)
        errors = [(found - expected).square().mean(1) for (found, _), expected in parts]
        means = self.mean_features(encoder, self.texts.held_out)
        cosines = self._cosines(encoder)
        return {
            "error": float(torch.cat(errors).mean()) / self.variance,
            "cosine": float(F.cosine_similarity(means, self.means).mean()),
            "gap": float((cosines - self.cosines).mean()),
            "rank": rank_correlation(cosines, self.cosines),
        }

    def mean_features(self, encoder: Encoder, texts: Sequence[str]) -> Tensor:
        """Of each text: B×C."""
        return torch.cat([mean for _, mean in self._run(encoder, texts)])

    def _cosines(self, encoder: Encoder) -> Tensor:
        """Of texts and the same texts with their words shuffled."""
        return F.cosine_similarity(*(self.mean_features(encoder, t) for t in self.ordered))

    @torch.no_grad()
    def _run(self, encoder: Encoder, texts: Sequence[str]) -> Iterator[tuple[Tensor, Tensor]]:
        """Features N×C and their means B×C, in batches, in order."""
        ids = self.texts.ids(texts)
        for first in range(0, len(ids), BATCH):
            batch = self.texts.batch(ids[first : first + BATCH])
            (features,) = encoder(batch)
            yield features, mean_features(features, batch)


def rank_correlation(first: Tensor, second: Tensor) -> float:
    """Spearman's, of two vectors without ties."""
    ranks = [each.argsort().argsort().double() for each in (first, second)]
    return float(torch.corrcoef(torch.stack(ranks))[0, 1])


def shown(measures: dict[str, Any]) -> str:
    """In one line."""
    return ", ".join(f"{name} {value:.3f}" for name, value in measures.items())
