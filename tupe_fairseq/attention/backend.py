"""Interface of attention backends, and the features that a layer can need.

A backend is a file of this folder with one subclass of `Backend`, registered in
`ATTENTION_BACKENDS`. It works in two steps: `prepare` once per forward pass for what layers share,
`attend` in each layer.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from ..position import LayerTerms, PositionEncoding
from ..position.relative import RelativeVectors
from ..position.score import PositionalScore
from ..registry import Registry
from .layout import Layout

ATTENTION_BACKENDS = Registry("--attention-backend", special=("auto",))


class Need(Enum):
    """A feature that a layer can need; the value is the reason given by a backend without it."""

    WEIGHTS = "it does not return attention weights"
    RELATIVE = "it cannot add products with vectors by distance, which depend on content"
    CONTENT_SCORE = "it cannot add a positional term that depends on content"
    RELATIVE_VALUE = "it cannot add vectors by distance to the values"
    CONTENT_VALUE = "it cannot add a positional term to the values"
    DISTANCE = "it cannot add a bias that depends on the distance"
    CAUSAL = "it cannot hide later tokens from a decoder"
    WINDOW = "it cannot restrict attention to a window"
    OTHER_QUERIES = "it supports neither incremental decoding nor cross-attention"
    COMPILED = "torch.compile (--compile-layers) cannot trace it"


def needs_of(
    encoding: PositionEncoding,
    terms: LayerTerms | None = None,
    *,
    window: int | None = None,
    weights: bool = False,
    compiled: bool = False,
    causal: bool = False,
    other_queries: bool = False,
) -> set[Need]:
    """What a layer with this encoding needs.

    Args:
        encoding: the encoding as the layer sees it.
        terms: its terms of the layer.
        window: its window in the layer, or None.
        weights: whether attention weights are returned.
        compiled: whether torch traces the layer.
        causal: whether later tokens are hidden.
        other_queries: whether queries and keys are at different positions.
    """
    relative = terms is not None and terms.is_relative
    adds_score = terms is not None and terms.adds_score
    adds_value = terms is not None and terms.adds_value
    asked = {
        Need.WEIGHTS: weights,
        Need.RELATIVE: adds_score and relative,
        Need.CONTENT_SCORE: adds_score and not relative,
        Need.RELATIVE_VALUE: adds_value and relative,
        Need.CONTENT_VALUE: adds_value and not relative,
        Need.DISTANCE: encoding.uses("score") and not encoding.score_is_product,
        Need.CAUSAL: causal,
        Need.WINDOW: window is not None,
        Need.OTHER_QUERIES: other_queries,
        Need.COMPILED: compiled,
    }
    return {need for need, is_asked in asked.items() if is_asked}


@dataclass(frozen=True)
class ContentTerms:
    """The terms of one layer that depend on content, for queries from a given position on.

    Attributes:
        terms: the layer's.
        encoding: what the layers share.
        start: position of the first query.
        projected: what `LayerTerms.project` returned, or None.
    """

    terms: LayerTerms
    encoding: PositionEncoding
    start: int = 0
    projected: Any = None

    def add_to_scores(self, scores: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
        """The scores, B×H×T×S or None for none, plus the term of queries and keys."""
        if not self.terms.adds_score:
            return scores
        # Without the dimensions that `LayerTerms.vectors` has appended.
        width = self.encoding.shape.head_dim
        q, k = q[..., :width], k[..., :width]
        added = self.terms.score(q, k, self.encoding, self.start, self.projected)
        return added if scores is None else scores + added

    def relative(self, queries: int, keys: int, dtype: torch.dtype) -> RelativeVectors | None:
        """The terms as vectors by distance for T queries and S keys; None for other terms."""
        if not self.terms.is_relative:
            return None
        found = self.projected
        if found is None:
            found = self.terms.project(self.encoding, max(self.start + queries, keys))
        return found.to(dtype)

    def add_to_output(self, out: Tensor, weights: Tensor) -> Tensor:
        """The output, B×H×T×D, plus the term of the attention weights, B×H×T×S."""
        if not self.terms.adds_value:
            return out
        return out + self.terms.value(weights, self.encoding, self.start, self.projected)


class Backend:
    """Computes softmax(q kᵀ + positional terms) v, exactly."""

    name: str
    #: The needs that it serves.
    serves: frozenset[Need] = frozenset()

    def refusal(self, needs: Collection[Need]) -> str | None:
        """Why it cannot serve all of these needs, or None."""
        return next((n.value for n in Need if n in needs and n not in self.serves), None)

    def unavailable(self, device: str) -> str | None:
        """Why it cannot run on this type of device, or None."""
        return None

    def prepare(
        self, score: PositionalScore | None, layout: Layout, heads: int, dtype: torch.dtype
    ) -> Any:
        """Prepare the inputs of `attend` that layers share, once per forward pass.

        Args:
            score: the content-free term, or None.
            layout: queries, keys and padding.
            heads: H.
            dtype: of the queries.
        """
        raise NotImplementedError

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        prepared: Any,
        terms: ContentTerms | None = None,
        dropout: float = 0.0,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend in one layer.

        Args:
            q: scaled queries, B×H×T×E.
            k: keys, B×H×S×E.
            v: values, B×H×S×D.
            prepared: what `prepare` returned.
            terms: the layer's terms that depend on content.
            dropout: probability of dropping an attention weight.
            need_weights: whether to return the attention weights.

        Returns:
            The output, B×H×T×D, and the weights before dropout, B×H×T×S, or None.
        """
        raise NotImplementedError
