"""No positions, the control: attention over a bag of words."""

from .base import PositionEncoding, register_position_encoding


@register_position_encoding("none")
class NoPosition(PositionEncoding):
    """score_ij = x_i W^Q (x_j W^K)ᵀ / √D."""
