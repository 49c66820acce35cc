"""How far an encoder follows its source on held-out texts."""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from scipy.stats import spearmanr
from torch import Tensor

from .encoders import Encoder, mean_features
from .texts import Texts, Tokens, has_order, shuffled

#: Texts whose order is measured.
ORDERED = 256
#: Texts of a batch.
BATCH = 32


class Order:
    """Whether an encoder reads the order of words as its source does.

    It compares each text with the same words in another order, by the cosine of their mean
    features.

    - gap: the mean cosine, minus that of the source
    - rank: the rank correlation of the cosine with that of the source, over texts

    Args:
        source: a text with another order of its words has a cosine in it.
        tokens: make batches of texts.
        texts: those whose order can be measured are used.
        change: text and generator -> the same words in another order.
    """

    def __init__(
        self,
        source: Encoder,
        tokens: Tokens,
        texts: Sequence[str],
        change: Callable[[str, random.Random], str] = shuffled,
    ):
        rng = random.Random(0)
        self.tokens = tokens
        self.texts = [text for text in texts if has_order(text)]
        self.changed = [change(text, rng) for text in self.texts]
        self.expected = self._cosines(source)

    def __call__(self, encoder: Encoder) -> dict[str, float]:
        """Both measures."""
        found = self._cosines(encoder)
        gap = float((found - self.expected).mean())
        return {"gap": gap, "rank": float(spearmanr(found, self.expected).statistic)}

    def _cosines(self, encoder: Encoder) -> Tensor:
        plain = vectors(encoder, self.tokens, self.texts)
        return F.cosine_similarity(plain, vectors(encoder, self.tokens, self.changed)).cpu()


class Fidelity:
    """Measures an encoder against its source on held-out texts.

    - error: the squared error of token features over the variance of the source's, 0 at best
    - cosine: of the mean features of a text in both encoders, averaged over texts
    - gap, rank: those of `Order`
    """

    def __init__(self, source: Encoder, texts: Texts):
        self.texts = texts
        self.order = Order(source, texts, list(filter(has_order, texts.held_out))[:ORDERED])
        parts = list(features_of(source, texts, texts.held_out))
        self.features = [features for features, _ in parts]
        self.means = torch.cat([mean for _, mean in parts])
        every = torch.cat(self.features)
        self.variance = float((every - every.mean(0)).square().mean())

    def __call__(self, encoder: Encoder) -> dict[str, float]:
        """The four measures."""
        errors = []
        means = []
        parts = features_of(encoder, self.texts, self.texts.held_out)
        for (found, mean), expected in zip(parts, self.features, strict=True):
            errors.append((found - expected).square().mean(1))
            means.append(mean)
        cosine = F.cosine_similarity(torch.cat(means), self.means)
        error = float(torch.cat(errors).mean()) / self.variance
        return {"error": error, "cosine": float(cosine.mean()), **self.order(encoder)}


@torch.no_grad()
def features_of(
    encoder: Encoder, tokens: Tokens, texts: Sequence[str]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Features N×C and their means B×C, in batches, in order."""
    ids = tokens.ids(texts)
    for first in range(0, len(ids), BATCH):
        batch = tokens.batch(ids[first : first + BATCH])
        (features,) = encoder(batch)
        yield features, mean_features(features, batch)


def vectors(encoder: Encoder, tokens: Tokens, texts: Sequence[str]) -> Tensor:
    """The mean features of each text: B×C."""
    return torch.cat([mean for _, mean in features_of(encoder, tokens, texts)])


def shown(measures: dict[str, Any]) -> str:
    """In one line."""
    return ", ".join(f"{name} {value:.3f}" for name, value in measures.items())
