"""Learned positions at the input and T5's bias (Song et al. 2020, "MPNet"; the released models).

score_ij = (x+p)_i W^Q ((x+p)_j W^K)ᵀ / √D + b_bucket(j−i): `learned` and `t5` together.
"""

from .base import register_position_encoding
from .learned import LearnedPosition
from .t5 import T5Bias


@register_position_encoding("mpnet")
class MPNetPosition(T5Bias, LearnedPosition):
    """A table of position embeddings, and one of the bias for all layers."""
