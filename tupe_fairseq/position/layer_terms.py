"""The hooks of an encoding that act in one layer."""

from typing import Any

from torch import Tensor, nn


class LayerTerms(nn.Module):
    """The part of an encoding that belongs to one attention layer (Shaw, Transformer-XL, DeBERTa).

    `adds_score`, `adds_value` and `adds_vectors` say which of the methods a subclass overrides, so
    that a backend can refuse what it does not serve. Terms that are products with vectors by
    distance derive from `relative.RelativeTerms`, which more backends serve.
    """

    adds_score = False
    adds_value = False
    adds_vectors = False
    #: Whether `read` takes the place of `project`, in encoders.
    reads_input = False
    #: Whether `project` returns `relative.RelativeVectors`, which score and value add.
    is_relative = False

    def project(self, encoding: Any, length: int) -> Any:
        """Projections of positions 0, ..., length − 1 that `score` reads, or None.

        Incremental decoding computes them once for many tokens.
        """
        return None

    def read(self, x: Tensor) -> Any:
        """What `score` reads from the layer's input, where `reads_input`; without a cache.

        Args:
            x: input of attention, B×T×C; any token's values at padding.
        """
        raise NotImplementedError

    def score(
        self,
        q: Tensor,
        k: Tensor,
        encoding: Any,
        start: int = 0,
        projected: Any = None,
    ) -> Tensor:
        """Content-dependent term added to the scores.

        Args:
            q: queries, already scaled by 1/√(score_terms·D), B×H×T×D.
            k: keys, B×H×S×D.
            encoding: what the layers share.
            start: position of the first query.
            projected: what `read` returned, or `project` for this length or a longer one; computed
                if None.

        Returns:
            B×H×T×S.
        """
        raise NotImplementedError

    def vectors(
        self, x: Tensor, carried: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Dimensions appended to queries and keys, computed from the layer's input.

        Their products are added to the scores. Gates act by this hook: a term F_i − F_j of the
        forgetting transformer is the product of (F_i, 1) and (1, −F_j). Return such sums in fp32
        (`.float()` before `cumsum`): where queries are in half precision, attention appends
        several dimensions for each, so that the products keep their precision
        (`attention.precision`).

        Args:
            x: input of attention, B×T×C; any token's values at padding.
            carried: what the call for the earlier tokens returned, in incremental decoding.

        Returns:
            Dimensions of queries and of keys, B×H×T×E each, and what the next tokens need, with B
            rows, or None.
        """
        raise NotImplementedError

    def value(
        self, weights: Tensor, encoding: Any, start: int = 0, projected: Any = None
    ) -> Tensor:
        """Term added to the attention output.

        Args:
            weights: attention weights, B×H×T×S.
            encoding: what the layers share.
            start: position of the first query.
            projected: as for `score`.

        Returns:
            B×H×T×D.
        """
        raise NotImplementedError
