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

from torch import nn

from .base import PositionEncoding, Shape, register_position_encoding
from .bias import AttentionBias
from .indices import distances
from .t5 import MaxDistance, NumBuckets, RelativeBias
from .tables import per_head, random_vectors, widened

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

    def __init__(self, shape: Shape, *, tie_cls: TieCls = False):
        super().__init__(shape)
        self.untie_cls = not tie_cls
        self.scaling = (self.score_terms * shape.head_dim) ** -0.5
        self.layer_norm = nn.LayerNorm(shape.embed_dim)
        self.q_proj = nn.Linear(shape.embed_dim, shape.embed_dim)
        self.k_proj = nn.Linear(shape.embed_dim, shape.embed_dim)
        self.weight = random_vectors(shape.max_positions + self.untie_cls, shape.embed_dim)
        for projection in (self.q_proj, self.k_proj):
            nn.init.normal_(projection.weight, std=0.02)
            nn.init.zeros_(projection.bias)
        # TUPE-R's b.
        self.relative_bias: RelativeBias | None = None

    def position_tables(self) -> dict[str, int]:
        return {"weight": 2 if self.untie_cls else 0}

    def attention_bias(self, queries: int, keys: int, start: int = 0) -> AttentionBias:
        rows = self.layer_norm(self.weight[: keys + self.untie_cls])
        # H×R×D
        q, k = (
            per_head(projection(rows), self.shape.num_heads).to(widened(rows.dtype))
            for projection in (self.q_proj, self.k_proj)
        )
        q = q * self.scaling
        by_distance = None
        if self.relative_bias is not None:
            distance = distances(queries, keys, start, device=self.weight.device)
            by_distance = self.relative_bias(distance)
        first = start + self.untie_cls
        bias = AttentionBias(
            keys,
            queries=q[:, first : first + queries],
            keys=k[:, -keys:],
            by_distance=by_distance,
            start=start,
        )
        if not self.untie_cls:
            return bias
        # Row 1 holds θ2. It is at position 0, where the reset overwrites its product.
        from_cls, to_cls = (q[:, :2] * k[:, :2]).sum(-1).unbind(-1)
        if self.relative_bias is not None:
            relative_from_cls, relative_to_cls = self.relative_bias.cls()
            from_cls, to_cls = from_cls + relative_from_cls, to_cls + relative_to_cls
        return bias.with_untied_cls(from_cls, to_cls)


@register_position_encoding("tupe_r")
class TupeRelative(TupeAbsolute):
    """TUPE-A and T5's bias; with [CLS] untied, b adds separate values to θ1 and θ2."""

    bias_is_product = False

    def __init__(
        self,
        shape: Shape,
        *,
        tie_cls: TieCls = False,
        num_buckets: NumBuckets = 32,
        max_distance: MaxDistance = 128,
    ):
        super().__init__(shape, tie_cls=tie_cls)
        self.relative_bias = RelativeBias(shape, num_buckets, max_distance, self.untie_cls)
