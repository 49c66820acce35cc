"""Transformer-XL's relative scores (Dai et al. 2019), in XLNet's bidirectional form (Yang 2019).

score_ij = [ x_i W^Q (x_j W^K)ᵀ + x_i W^Q (W_{K,R} R_{i−j})ᵀ + u (x_j W^K)ᵀ + v (W_{K,R} R_{i−j})ᵀ
] / √D, section 3.3: content, content and distance, content alone, distance alone. R is sinusoidal;
its columns alternate sine and cosine, where the authors' code stacks them, which permutes W_{K,R}.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .base import PositionEncoding, Shape, register_position_encoding
from .layer_terms import LayerTerms
from .tables import ConstantTable, relative_shift, sinusoids


class TransformerXLTerms(LayerTerms):
    """W_{K,R}, u and v of one layer."""

    adds_score = True

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        self.r_proj = nn.Linear(shape.embed_dim, shape.embed_dim, bias=False)
        self.content_bias = nn.Parameter(torch.empty(shape.num_heads, 1, shape.head_dim))
        self.position_bias = nn.Parameter(torch.empty(shape.num_heads, 1, shape.head_dim))
        nn.init.normal_(self.content_bias, std=0.02)
        nn.init.normal_(self.position_bias, std=0.02)

    def project(self, encoding, length) -> Tensor:
        """W_{K,R} R of the distances j − i from −(length−1) to length − 1, H×D×(2·length−1)."""
        waves = self.r_proj(encoding.waves(length, self.r_proj.weight.dtype))
        return waves.unflatten(-1, (self.shape.num_heads, -1)).permute(1, 2, 0)

    def score(self, q, k, encoding, start=0, projected=None) -> Tensor:
        scale = self.shape.head_dim**-0.5
        last = start + q.size(2) - 1
        if projected is None:
            projected = self.project(encoding, max(last + 1, k.size(2)))
        # The distances at hand: from the last query to the first key, ..., to the last key.
        zero = projected.size(-1) // 2
        by_head = projected[:, :, zero - last : zero + k.size(2) - start]
        # B×H×T×D · H×D×(T+S−1) -> B×H×T×(T+S−1) -> B×H×T×S
        distance = relative_shift((q + self.position_bias * scale) @ by_head, k.size(2))
        # H×1×D · B×H×D×S -> B×H×1×S
        return distance + (self.content_bias * scale) @ k.transpose(-2, -1)


@register_position_encoding("transformer_xl")
class TransformerXLPosition(PositionEncoding):
    """Sinusoids of the distance, projected and correlated in every layer."""

    enters = "score"
    paper = "Dai 2019; Yang 2019"
    in_decoder = "the form of Dai 2019"

    def __init__(self, shape: Shape):
        super().__init__(shape)
        longest = shape.max_positions - 1
        self.table = ConstantTable(sinusoids(torch.arange(-longest, longest + 1), shape.embed_dim))

    def waves(self, length: int, dtype: torch.dtype) -> Tensor:
        """R_{i−j} for the distances j − i from −(length−1) to length − 1, (2·length−1)×C."""
        # The rows run over i − j from −(max_positions−1): ascending j − i reads them backwards.
        zero = self.shape.max_positions - 1
        return self.table(dtype, zero - length + 1, zero + length).flip(0).to(dtype)

    def build_layer_terms(self) -> TransformerXLTerms:
        return TransformerXLTerms(self.shape)
