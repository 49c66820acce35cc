"""Interface of attention backends, and the features that a layer can require of them.

A backend is a file of this folder with one subclass of `Backend`, registered in
`ATTENTION_BACKENDS`. It works in two steps: `prepare` once per forward pass for layers that share
a bias, `attend` in each layer.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from ..position import LayerTerms, PositionEncoding
from ..position.bias import AttentionBias
from ..position.relative import RelativeVectors
from ..position.tables import widened
from ..registry import Registry
from .layout import Layout

ATTENTION_BACKENDS = Registry("--attention-backend", special=("auto",))


class Feature(Enum):
    """What a layer can require; the value is the reason given by a backend that lacks it."""

    RELATIVE = "it cannot add products with vectors by distance, which depend on content"
    CONTENT = "it cannot add a positional term that depends on content"
    RELATIVE_VALUES = "it cannot add vectors by distance to the values"
    DISTANCE = "it cannot add a bias that depends on the distance"
    FACTOR = "it cannot multiply attention weights after the softmax"
    SCALED_SUMS = "it cannot scale scores that are products of vectors from the layer's input"
    DECODER = "it cannot hide later tokens from a decoder"
    WINDOW = "it cannot restrict attention to a window"
    COMPILED = "torch.compile (--compile-layers) cannot trace it"


def required_features(
    encoding: PositionEncoding,
    terms: LayerTerms | None = None,
    *,
    window: int | None = None,
    compiled: bool = False,
    decoder: bool = False,
) -> set[Feature]:
    """What a layer requires of a backend.

    Args:
        encoding: the encoding as the layer sees it.
        terms: the encoding's terms of the layer.
        window: its window in the layer, or None.
        compiled: whether torch traces the layer.
        decoder: whether later tokens are hidden, or queries and keys are at different positions
            (incremental decoding, cross-attention).
    """
    required = {
        Feature.RELATIVE: terms is not None and terms.uses("relative"),
        Feature.CONTENT: terms is not None and terms.uses("content"),
        Feature.RELATIVE_VALUES: terms is not None and terms.has_values,
        Feature.DISTANCE: encoding.uses("attention_bias") and not encoding.bias_is_product,
        Feature.FACTOR: encoding.multiplies_weights,
        Feature.SCALED_SUMS: terms is not None
        and terms.uses("vectors")
        and encoding.shape.log_scaling_floor is not None
        and window is None,
        Feature.DECODER: decoder,
        Feature.WINDOW: window is not None,
        Feature.COMPILED: compiled,
    }
    return {feature for feature, is_required in required.items() if is_required}


@dataclass(frozen=True)
class SharedAttention:
    """What a backend knows besides queries, keys and values.

    All but the last two fields are shared by the layers that see the same of the encoding.

    Attributes:
        backend: the backend to use.
        layout: the tokens of the batch.
        prepared: what the backend's `prepare` returned.
        encoding: the encoding as these layers see it; None in cross-attention.
        start: position of the first query.
        relative: the vectors by distance of one layer, or None.
        content: the term of one layer that depends on content, B×H×T×S, or None.
        temperature: T×1 in fp64, what scores are multiplied by. Of the bias, that has been done.
    """

    backend: "Backend"
    layout: Layout
    prepared: Any
    encoding: PositionEncoding | None = None
    start: int = 0
    relative: RelativeVectors | None = None
    content: Tensor | None = None
    temperature: Tensor | None = None

    def scaled(self, x: Tensor) -> Tensor:
        """Queries, B×H×T×E, or scores, B×H×T×S, times the temperature."""
        if self.temperature is None:
            return x
        return (x * self.temperature.to(widened(x.dtype))).to(x.dtype)

    def layer_scores(self, q: Tensor, k: Tensor) -> Tensor | None:
        """What the layer's own terms add to the scores of q and k, B×H×T×S, or None."""
        if self.relative is None:
            return self.content
        scores = self.relative.scores(q, k, self.start)
        return scores if self.content is None else scores + self.content


class Backend:
    """Computes softmax(q kᵀ + positional terms) v, exactly."""

    name: str
    #: The features that it supports.
    supports: frozenset[Feature] = frozenset()

    def unsupported(self, features: Collection[Feature]) -> str | None:
        """Why it does not support all of these features, or None."""
        return next((f.value for f in Feature if f in features and f not in self.supports), None)

    def unavailable(self, device: str) -> str | None:
        """Why it cannot run on this type of device, or None."""
        return None

    def prepare(
        self, bias: AttentionBias | None, layout: Layout, heads: int, dtype: torch.dtype
    ) -> Any:
        """Prepare the inputs of `attend` that layers share, once per forward pass.

        Args:
            bias: what positions add to the scores, or None.
            layout: queries, keys and padding.
            heads: H.
            dtype: of the queries.
        """
        raise NotImplementedError

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, shared: SharedAttention, dropout: float = 0.0
    ) -> Tensor:
        """Attend in one layer.

        Args:
            q: scaled queries, B×H×T×E.
            k: keys, B×H×S×E.
            v: values, B×H×S×D.
            shared: prepared by this backend, with the layer's own terms.
            dropout: probability of dropping an attention weight.

        Returns:
            B×H×T×D.
        """
        raise NotImplementedError
