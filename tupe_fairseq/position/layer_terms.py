"""The hooks of an encoding that act in one layer."""

from typing import Any

from torch import Tensor, nn

from .relative import RelativeVectors


class LayerTerms(nn.Module):
    """The part of an encoding that belongs to one attention layer.

    A subclass overrides at least one of four hooks. `rotate` changes queries, keys and values with
    parameters of the layer (PoPE). `relative` is for products with vectors by distance (Shaw,
    Transformer-XL, DeBERTa), in O(T) memory; with `relative_queries`, other queries, computed from
    the layer's input, replace the queries (the relative bank). `vectors` is for products of
    vectors computed from the layer's input (FoX). `content` is for any other term, as B×H×T×S.
    The input of a layer, x, holds arbitrary values at padding.

    Raises:
        TypeError: the subclass overrides none.
    """

    #: Whether `relative` also adds vectors to the values.
    has_values = False

    def __init__(self) -> None:
        super().__init__()
        if not any(map(self.uses, ("rotate", "relative", "content", "vectors"))):
            raise TypeError(f"{type(self).__name__} overrides no hook of LayerTerms.")

    @property
    def reads_input(self) -> bool:
        """Whether a hook reads the input of attention."""
        return any(map(self.uses, ("content", "relative_queries", "vectors")))

    @classmethod
    def uses(cls, hook: str) -> bool:
        """Whether this class overrides the hook of that name."""
        return getattr(cls, hook) is not getattr(LayerTerms, hook)

    def rotate(
        self, q: Tensor, k: Tensor, v: Tensor, encoding: Any, start: int = 0
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `PositionEncoding.rotate`, after it, with parameters of the layer.

        Args:
            q: queries, already scaled by 1/√(score_terms·D), B×H×T×D.
            k: keys, B×H×T×D.
            v: values, B×H×T×D.
            encoding: what the layers share.
            start: position of the first token.

        Returns:
            Queries and keys, B×H×T×E each with E ≥ D; values, B×H×T×D.
        """
        return q, k, v

    def relative(self, encoding: Any, length: int, attention: Any = None) -> RelativeVectors:
        """Vectors for the distances among positions 0, ..., length − 1.

        Incremental decoding computes them once for many tokens.

        Args:
            encoding: what the layers share.
            length: the number of positions.
            attention: of the layer, with the projections of content `q_proj` and `k_proj`.
        """
        raise NotImplementedError

    def relative_queries(self, x: Tensor) -> Tensor | None:
        """What `relative` multiplies by the vectors for queries, in place of the queries.

        Args:
            x: input of attention, B×T×C.

        Returns:
            B×H×T×D for vectors of any width D, or None for the queries themselves.
        """
        return None

    def content(self, q: Tensor, k: Tensor, x: Tensor, encoding: Any, start: int = 0) -> Tensor:
        """A term that depends on content, added to the scores.

        Args:
            q: queries, already scaled by 1/√(score_terms·D), B×H×T×D.
            k: keys, B×H×S×D.
            x: input of attention, B×T×C.
            encoding: what the layers share.
            start: position of the first query.

        Returns:
            B×H×T×S.
        """
        raise NotImplementedError

    def vectors(
        self, x: Tensor, carried: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Dimensions appended to queries and keys, so that their products are added to the scores.

        For example, the gates of FoX add F_i − F_j, the product of (F_i, 1) and (1, −F_j). Return
        sums over tokens in fp32 (`.float()` before `cumsum`): `attention.precision` then keeps
        their precision where queries are in half precision.

        Args:
            x: input of attention, B×T×C.
            carried: what the call for the earlier tokens returned, in incremental decoding.

        Returns:
            Dimensions of queries and of keys, B×H×T×E each, and what the next tokens need, with B
            rows, or None.
        """
        raise NotImplementedError
