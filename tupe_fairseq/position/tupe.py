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

from dataclasses import replace
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from ..base.errors import ConfigurationError
from ..base.options import Mark
from ..base.tracing import is_exporting
from .base import PositionEncoding, Shape, check_at_least, register_position_encoding
from .bias import AttentionBias
from .by_distance import (
    ToeplitzFar,
    ToeplitzSlope,
    TrainedPositions,
    bias_by_distance,
    mean_by_distance,
)
from .dtypes import widened
from .indices import distances
from .initial import random_vectors
from .t5 import MaxDistance, NumBuckets, RelativeBias
from .tables import per_head
from .unused import refuse_unused, warn_unused

TieCls = Annotated[
    bool, "treat [CLS] as any other position (the ablation of section 3.2)", Mark.FIXED
]


NEEDED = "--extend-positions toeplitz"


@register_position_encoding("tupe_a")
class TupeAbsolute(PositionEncoding):
    """Absolute positions, correlated through separate projections.

    Rows of the table `weight`, with [CLS] untied as in the authors' release: 0 for θ1, 1 for θ2,
    k + 1 for position k ≥ 1; position 0 has none, because the reset overwrites its scores. With
    [CLS] tied: row k for position k.

    Raises:
        ConfigurationError: more trained positions than there are, or no cell of theirs is so far
            away as --toeplitz-far.
    """

    score_terms = 2
    bias_is_product = True
    continues_by_distance = True

    def __init__(
        self,
        shape: Shape,
        *,
        tie_cls: TieCls = False,
        trained_positions: TrainedPositions = None,
        toeplitz_far: ToeplitzFar = None,
        toeplitz_slope: ToeplitzSlope = 1.0,
    ):
        super().__init__(shape)
        check_at_least("--toeplitz-slope", toeplitz_slope, 0)
        self.untie_cls = not tie_cls
        #: Positions that have a row in the table; others are continued by distance.
        self.trained = shape.max_positions
        if shape.extend_positions == "toeplitz" and trained_positions is not None:
            if not 2 < trained_positions <= shape.max_positions:
                raise ConfigurationError(
                    f"--trained-positions is {trained_positions}, but must be at least 3 and at "
                    f"most --max-positions, which is {shape.max_positions}."
                )
            self.trained = trained_positions
        if shape.extend_positions != "toeplitz":
            _check_unused(toeplitz_far, toeplitz_slope)
        if shape.extend_positions is None and trained_positions not in (None, self.trained):
            # Recorded by a checkpoint, or given in vain.
            warn_unused("--trained-positions", trained_positions, NEEDED)
        size = self.trained - self.untie_cls
        self.far = max(1, size // 2) if toeplitz_far is None else toeplitz_far
        if toeplitz_far is not None and not 0 < toeplitz_far < size:
            raise ConfigurationError(
                f"--toeplitz-far is {toeplitz_far}, but must be at least 1 and below {size}, the "
                "trained positions without an untied [CLS]."
            )
        self.slope = toeplitz_slope
        # A term by distance is not a product.
        self.bias_is_product = self.bias_is_product and self.trained == shape.max_positions
        self.scaling = (self.score_terms * shape.head_dim) ** -0.5
        self.layer_norm = nn.LayerNorm(shape.embed_dim)
        self.q_proj = nn.Linear(shape.embed_dim, shape.embed_dim)
        self.k_proj = nn.Linear(shape.embed_dim, shape.embed_dim)
        self.weight = random_vectors(self.trained + self.untie_cls, shape.embed_dim)
        for projection in (self.q_proj, self.k_proj):
            nn.init.normal_(projection.weight, std=0.02)
            nn.init.zeros_(projection.bias)
        # TUPE-R's b.
        self.relative_bias: RelativeBias | None = None

    def position_tables(self) -> dict[str, int]:
        return {"weight": 2 if self.untie_cls else 0}

    @classmethod
    def recorded(cls, options: dict[str, Any], max_positions: int) -> dict[str, Any]:
        return {**options, "trained_positions": options["trained_positions"] or max_positions}

    def attention_bias(self, queries: int, keys: int, start: int = 0) -> AttentionBias:
        if self.trained == self.shape.max_positions:
            return self._as_trained(*self._vectors(keys), queries, keys, start)
        if is_exporting():
            return self._of_any_length(queries, keys)
        if keys <= self.trained:
            return self._as_trained(*self._vectors(keys), queries, keys, start)
        q, k = self._vectors(self.trained)
        bias = self._by_distance(q, k, queries, keys, start)
        if start >= self.trained:
            return bias
        known = self._as_trained(q, k, min(queries, self.trained - start), self.trained, start)
        return replace(bias, exact=known.dense())

    def _as_trained(
        self, q: Tensor, k: Tensor, queries: int, keys: int, start: int
    ) -> AttentionBias:
        """The term of positions that have a row in the table; q and k are those of `_vectors`."""
        first = start + self.untie_cls
        return AttentionBias(
            keys,
            queries=q[:, first : first + queries],
            keys=k[:, -keys:],
            by_distance=self._relative(queries, keys, start),
            start=start,
            cls=self._cls(q, k),
        )

    def _by_distance(
        self, q: Tensor, k: Tensor, queries: int, keys: int, start: int = 0
    ) -> AttentionBias:
        """The term by distance; q and k are the `_vectors` of all trained positions."""
        means = self._means(q, k)
        cls = self._cls(q, k)
        return bias_by_distance(means, self.far, self.slope, queries, keys, start, cls)

    def _means(self, q: Tensor, k: Tensor) -> Tensor:
        """The means by distance, H×(2c+1); q and k are the `_vectors` of all trained positions."""
        # Without [CLS], if it is untied.
        first = 2 * self.untie_cls
        size = self.trained - self.untie_cls
        relative = self._relative(size, size)
        cells = AttentionBias(size, q[:, first:], k[:, first:], relative).dense()
        return mean_by_distance(cells, self.far)

    def _of_any_length(self, queries: int, keys: int) -> AttentionBias:
        """The term as cells, for an exported program, which does not know its length."""
        q, k = self._vectors(self.trained)
        position = torch.arange(keys, device=q.device)
        row = position.clamp(max=self.trained - 1) + self.untie_cls
        by_distance = self._relative(queries, keys)
        known = AttentionBias(keys, q[:, row], k[:, row], by_distance, cls=self._cls(q, k))
        is_known = position < self.trained
        is_known = is_known[:, None] & is_known
        other = self._by_distance(q, k, queries, keys)
        return AttentionBias(keys, cells=torch.where(is_known, known.dense(), other.dense()))

    def _relative(self, queries: int, keys: int, start: int = 0) -> Tensor | None:
        """TUPE-R's bias by distance, H×(T+S−1)."""
        if self.relative_bias is None:
            return None
        distance = distances(queries, keys, start, device=self.weight.device)
        return self.relative_bias.by_distance(distance)

    def _cls(self, q: Tensor, k: Tensor) -> Tensor | None:
        """θ1 and θ2, H×2, if [CLS] is untied."""
        if not self.untie_cls:
            return None
        # Row 1 holds θ2. It is at position 0, where the reset overwrites its product.
        terms = (q[:, :2] * k[:, :2]).sum(-1)
        return terms if self.relative_bias is None else terms + self.relative_bias.cls()

    def _vectors(self, positions: int) -> tuple[Tensor, Tensor]:
        """Projected rows of the table for N positions and an untied [CLS], two of H×(N+1)×D."""
        rows = self.layer_norm(self.weight[: positions + self.untie_cls])
        heads = self.shape.num_heads
        wide = widened(rows.dtype)
        q = per_head(self.q_proj(rows), heads).to(wide)
        k = per_head(self.k_proj(rows), heads).to(wide)
        return q * self.scaling, k


@register_position_encoding("tupe_r")
class TupeRelative(TupeAbsolute):
    """TUPE-A and T5's bias; with [CLS] untied, b adds separate values to θ1 and θ2."""

    bias_is_product = False

    def __init__(
        self,
        shape: Shape,
        *,
        tie_cls: TieCls = False,
        trained_positions: TrainedPositions = None,
        toeplitz_far: ToeplitzFar = None,
        toeplitz_slope: ToeplitzSlope = 1.0,
        num_buckets: NumBuckets = 32,
        max_distance: MaxDistance = 128,
    ):
        super().__init__(
            shape,
            tie_cls=tie_cls,
            trained_positions=trained_positions,
            toeplitz_far=toeplitz_far,
            toeplitz_slope=toeplitz_slope,
        )
        self.relative_bias = RelativeBias(shape, num_buckets, max_distance, self.untie_cls)


def _check_unused(far: int | None, slope: float) -> None:
    """Raise a ConfigurationError for options of a term that is not continued."""
    if far is not None:
        refuse_unused("--toeplitz-far", far, NEEDED)
    if slope != 1:
        refuse_unused("--toeplitz-slope", slope, NEEDED)
