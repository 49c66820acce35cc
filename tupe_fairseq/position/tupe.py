"""TUPE (Ke, He, Liu, ICLR 2021): separate correlations of tokens and positions, untied [CLS].

TUPE-A, equation 7:  score_ij = [ x_i W^Q (x_j W^K)ᵀ + p_i U^Q (p_j U^K)ᵀ ] / √(2D)
TUPE-R, equation 8:  TUPE-A + b_bucket(j−i), b as in T5 and not divided by √(2D)
Untied [CLS], section 3.2, on the positional part: row 0 := θ1, column 0 of the other rows := θ2.

p is added neither to the input nor to the values; p, U^Q, U^K and b are shared by all layers. As
in the authors' release and unlike the paper, U^Q and U^K have a bias, p passes a LayerNorm before
them, and with [CLS] untied TUPE-R also resets b, to learned values. θ1 is part of that release's
file format but has no effect: row 0 is constant over j and softmax is shift-invariant, so [CLS]
attends by content alone.
"""

from typing import Annotated

import torch
from torch import Tensor, nn

from .base import PositionEncoding, Shape, register_position_encoding
from .bias import AttentionBias
from .indices import distances
from .t5 import MaxDistance, NumBuckets, RelativeBias
from .tables import widened

TieCls = Annotated[bool, "treat [CLS] as any other position (the ablation of section 3.2)"]


@register_position_encoding("tupe_a")
class TupeAbsolute(PositionEncoding):
    """Absolute positions, correlated through separate projections.

    Rows of the table `weight`, with [CLS] untied as in the authors' release: 0 for θ1, 1 for θ2,
    k + 1 for position k ≥ 1; position 0 has none, because the reset overwrites its scores. With
    [CLS] tied: row k for position k.
    """

    score_terms = 2
    bias_is_product = True
    enters = "score"
    paper = "Ke 2021"
    in_decoder = "[CLS] tied"
    beyond_trained_length = "--extend-positions"

    def __init__(
        self,
        shape: Shape,
        *,
        tie_cls: TieCls = False,
    ):
        super().__init__(shape)
        self.untie_cls = not tie_cls
        self.scaling = (self.score_terms * shape.head_dim) ** -0.5
        self.weight = nn.Parameter(
            torch.empty(shape.max_positions + self.untie_cls, shape.embed_dim)
        )
        self.layer_norm = nn.LayerNorm(shape.embed_dim)
        self.q_proj = nn.Linear(shape.embed_dim, shape.embed_dim)
        self.k_proj = nn.Linear(shape.embed_dim, shape.embed_dim)
        for weight in (self.weight, self.q_proj.weight, self.k_proj.weight):
            nn.init.normal_(weight, std=0.02)
        nn.init.zeros_(self.q_proj.bias)
        nn.init.zeros_(self.k_proj.bias)
        # TUPE-R's b.
        self.relative_bias: RelativeBias | None = None

    def position_tables(self) -> dict[str, int]:
        return {"weight": 2 if self.untie_cls else 0}

    def attention_bias(self, queries: int, keys: int, start: int = 0) -> AttentionBias:
        rows = self.layer_norm(self.weight[: keys + self.untie_cls])
        q = self._per_head(self.q_proj(rows)) * self.scaling
        k = self._per_head(self.k_proj(rows))
        bias, distance = self.relative_bias, None
        if bias is not None:
            distance = distances(queries, keys, start, device=self.weight.device)
        first = start + self.untie_cls
        found = AttentionBias(
            keys,
            queries=q[:, first : first + queries],
            keys=k[:, -keys:],
            by_distance=None if bias is None else bias(distance),
            start=start,
        )
        if not self.untie_cls:
            return found
        # Row 1 holds θ2. It is at position 0, where the reset overwrites its product.
        from_cls, to_cls = (q[:, :2] * k[:, :2]).sum(-1).unbind(-1)
        if bias is not None:
            relative_from_cls, relative_to_cls = bias.cls()
            from_cls, to_cls = from_cls + relative_from_cls, to_cls + relative_to_cls
        return found.with_untied_cls(from_cls, to_cls)

    def _per_head(self, rows: Tensor) -> Tensor:
        # R×C -> R×H×D -> H×R×D
        return (
            rows.view(-1, self.shape.num_heads, self.shape.head_dim)
            .transpose(0, 1)
            .to(widened(rows.dtype))
        )


@register_position_encoding("tupe_r")
class TupeRelative(TupeAbsolute):
    """TUPE-A and T5's bias; with [CLS] untied, b adds separate values to θ1 and θ2."""

    bias_is_product = False
    in_decoder = "[CLS] tied, all buckets for keys on the left"

    def __init__(
        self,
        shape: Shape,
        *,
        tie_cls: TieCls = False,
        num_buckets: NumBuckets = 32,
        max_distance: MaxDistance = 128,
    ):
        super().__init__(shape, tie_cls=tie_cls)
        self.relative_bias = RelativeBias(
            shape.num_heads,
            num_buckets,
            max_distance,
            shape.bidirectional,
            untie_cls=self.untie_cls,
        )
