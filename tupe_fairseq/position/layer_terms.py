"""The hooks of an encoding that act in one layer."""

from typing import Any

from torch import Tensor, nn

from .relative import RelativeVectors


class LayerTerms(nn.Module):
    """The part of an encoding that belongs to one attention layer.

    A subclass overrides at least one of two hooks. `rotate` changes queries, keys and values with
    parameters of the layer (PoPE). `relative` is for products with vectors by distance (Shaw,
    Transformer-XL, DeBERTa), in O(T) memory.

    Raises:
        TypeError: the subclass overrides none.
    """

    #: Whether `relative` also adds vectors to the values.
    has_values = False

    def __init__(self) -> None:
        super().__init__()
        if not any(map(self.uses, ("rotate", "relative"))):
            raise TypeError(f"{type(self).__name__} overrides no hook of LayerTerms.")

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

        They are as wide as queries and keys. Incremental decoding computes them once for many
        tokens.

        Args:
            encoding: what the layers share.
            length: the number of positions.
            attention: of the layer, with the projections of content `q_proj` and `k_proj`.
        """
        raise NotImplementedError
