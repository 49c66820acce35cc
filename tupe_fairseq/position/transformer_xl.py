"""Transformer-XL's relative scores (Dai et al. 2019), in XLNet's bidirectional form (Yang 2019).

score_ij = [ x_i W^Q (x_j W^K)ᵀ + x_i W^Q (W_{K,R} R_{i−j})ᵀ + u (x_j W^K)ᵀ + v (W_{K,R} R_{i−j})ᵀ
] / √D, section 3.3: content, content and distance, content alone, distance alone. R is sinusoidal;
its columns alternate sine and cosine, where the authors' code stacks them, which permutes W_{K,R}.
"""

from typing import Any

import torch
from torch import Tensor, nn

from ..kernels.linear import project
from .base import PositionEncoding, Shape, register_position_encoding
from .initial import random_vectors
from .layer_terms import LayerTerms
from .relative import ByDistance, RelativeVectors
from .tables import ConstantTable, per_head, sinusoids


class TransformerXLTerms(LayerTerms):
    """W_{K,R}, u and v of one layer."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        self.r_proj = nn.Linear(shape.embed_dim, shape.embed_dim, bias=False)
        self.content_bias = random_vectors(shape.num_heads, 1, shape.head_dim)
        self.position_bias = random_vectors(shape.num_heads, 1, shape.head_dim)

    def relative(self, encoding: Any, length: int, attention: Any = None) -> RelativeVectors:
        """W_{K,R} R of the distances j − i from −(length−1) to length − 1, with u and v."""
        waves = project(encoding.waves(length, self.position_bias.dtype), self.r_proj)
        # (2·length−1)×C -> H×(2·length−1)×D
        vectors = per_head(waves, self.shape.num_heads)
        scale = self.shape.head_dim**-0.5
        return RelativeVectors(
            ByDistance(vectors, 1 - length),
            query_bias=self.position_bias * scale,
            key_bias=self.content_bias * scale,
        )


@register_position_encoding("transformer_xl")
class TransformerXLPosition(PositionEncoding):
    """Sinusoids of the distance, projected and correlated in every layer."""

    def __init__(self, shape: Shape):
        super().__init__(shape)
        longest = shape.max_positions - 1
        self.table = ConstantTable(sinusoids(torch.arange(-longest, longest + 1), shape.embed_dim))

    def waves(self, length: int, dtype: torch.dtype) -> Tensor:
        """R_{i−j} for the distances j − i from −(length−1) to length − 1, (2·length−1)×C."""
        # The rows run over i − j from −(max_positions−1): ascending j − i reads them backwards.
        zero = self.shape.max_positions - 1
        return self.table(dtype, slice(zero - length + 1, zero + length)).flip(0).to(dtype)

    def build_layer_terms(self) -> TransformerXLTerms:
        return TransformerXLTerms(self.shape)
