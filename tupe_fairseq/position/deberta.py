"""Disentangled attention (He et al. 2020, DeBERTa): content and relative position.

score_ij = [ q_i k_j + q_i k^R_{δ(i,j)} + k_j q^R_{δ(j,i)} ] / √(3D), equation 4, where
k^R = P W^K_R and q^R = P W^Q_R; P is shared by all layers and δ(i,j) = clip(i − j + k, 0, 2k − 1),
equation 3. The position-to-position term is left out.

The released DeBERTa-v2 and v3 (He et al. 2021) depart from it; each departure is an option:
q^R is read at δ(i,j), distances share rows in logarithmic buckets, a LayerNorm normalises P, W^K_R
and W^Q_R are those of content, one or both terms are left out, which changes the factor 3.
"""

import copy
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from ..base.errors import ConfigurationError
from ..base.options import Mark
from ..base.tracing import is_exporting
from ..kernels.dropout import dropout
from ..kernels.linear import project
from .base import PositionEncoding, Shape, check_at_least, register_position_encoding
from .initial import random_vectors
from .layer_terms import LayerTerms
from .relative import ByDistance, RelativeVectors
from .shaw import RelativeClip
from .tables import per_head

#: Values of --deberta-terms: content to position, q_i k^R, and position to content, k_j q^R.
TERMS = ("c2p+p2c", "c2p", "p2c", "none")


class DebertaTerms(LayerTerms):
    """W^K_R and W^Q_R of one layer, where they are not those of content."""

    def __init__(self, shape: Shape, terms: str, shared: bool, dropout: float):
        super().__init__()
        self.shape = shape
        self.terms = terms
        self.dropout = dropout
        width = shape.embed_dim
        self.pos_k_proj = nn.Linear(width, width) if "c2p" in terms and not shared else None
        self.pos_q_proj = nn.Linear(width, width) if "p2c" in terms and not shared else None

    def relative(self, encoding: Any, length: int, attention: Any = None) -> RelativeVectors:
        """k^R and scaled q^R at the rows of P that this length reaches."""
        table = encoding.rows(length)
        if self.training and self.dropout:
            table = dropout(table, self.dropout)
        pos_k = None
        pos_q = None
        if "c2p" in self.terms:
            pos_k = project(table, self.pos_k_proj or attention.k_proj)
        if "p2c" in self.terms:
            pos_q = project(table, self.pos_q_proj or attention.q_proj)
        vectors: RelativeVectors = encoding.vectors(pos_k, pos_q, length)
        return vectors


@register_position_encoding("deberta")
class DebertaPosition(PositionEncoding):
    """The relative table P; absolute positions at the input, or before the LM head.

    Departure: the paper's enhanced mask decoder runs the last layer again with the absolute
    positions in its queries; here they are added to the features that the LM head reads.

    Raises:
        ConfigurationError: unknown terms, or numbers for which the buckets are not defined.
    """

    buckets: Tensor | None
    #: P as the layers of one pass read it, where it is normalised once for all.
    normalised: Tensor | None = None

    def __init__(
        self,
        shape: Shape,
        *,
        relative_clip: RelativeClip = 512,
        deberta_emd: Annotated[bool, "add absolute positions before the LM head"] = False,
        deberta_absolute: Annotated[bool, "add absolute positions to the input"] = False,
        deberta_terms: Annotated[str, f"terms of the scores: {' or '.join(TERMS)}"] = TERMS[0],
        deberta_released: Annotated[
            bool, "read both terms at δ(i,j), as the released code; the paper reads one at δ(j,i)"
        ] = False,
        deberta_buckets: Annotated[
            int,
            "buckets of distances on each side, half of them logarithmic up to --relative-clip; "
            "0: a row for each distance",
        ] = 0,
        deberta_share: Annotated[
            bool, "project the relative table by the projections of content"
        ] = False,
        deberta_norm: Annotated[bool, "LayerNorm of the relative table"] = False,
        deberta_dropout: Annotated[
            float, "dropout of the relative table in each layer", Mark.FREE
        ] = 0.0,
    ):
        super().__init__(shape)
        check_at_least("--relative-clip", relative_clip, 1)
        check_options(deberta_terms, deberta_dropout)
        self.terms = deberta_terms
        self.released = deberta_released
        self.shared = deberta_share
        # Content to content, and each term such as c2p.
        self.score_terms = 1 + deberta_terms.count("2")
        self.dropout = deberta_dropout
        self.relative_clip = relative_clip
        self.weight = random_vectors(2 * (deberta_buckets or relative_clip), shape.embed_dim)
        self.absolute = None
        self.absolute_input = None
        if deberta_emd:
            self.absolute = random_vectors(shape.max_positions, shape.embed_dim)
        if deberta_absolute:
            self.absolute_input = random_vectors(shape.max_positions, shape.embed_dim)
        # As the released code: farther distances share the last rows.
        no_tables = not (deberta_emd or deberta_absolute)
        self.any_length = deberta_released and no_tables and shape.bidirectional
        self.norm = nn.LayerNorm(shape.embed_dim) if deberta_norm else None
        buckets = None
        if deberta_buckets:
            check_buckets(deberta_buckets, relative_clip)
            distance = torch.arange(shape.max_positions)
            buckets = log_buckets(distance, deberta_buckets, relative_clip)
        self.register_buffer("buckets", buckets, persistent=False)
        self.bucket_of = [] if buckets is None else buckets.tolist()

    @property
    def rows_a_side(self) -> int:
        """Rows of P on each side."""
        return len(self.weight) // 2

    @property
    def longest(self) -> int:
        """A length whose vectors by distance serve all lengths.

        From it on, all distances share the last bucket. It is one more than a program reads:
        torch exports no slice that can be the whole tensor.
        """
        return max(self.shape.max_positions, self.relative_clip) + 1

    def for_pass(
        self, length: int, device: torch.device, padding_mask: Tensor | None = None
    ) -> PositionEncoding:
        if self.norm is None:
            return self
        normalised = copy.copy(self)
        normalised.normalised = self.rows(length)
        return normalised

    def rows(self, length: int) -> Tensor:
        """The rows of P that this length reaches, R×C: the middle of the table."""
        if self.normalised is not None:
            return self.normalised
        near = self.rows_reached(length)
        table = self.weight[self.rows_a_side - near : self.rows_a_side + near]
        return table if self.norm is None else self.norm(table)

    def vectors(self, pos_k: Tensor | None, pos_q: Tensor | None, length: int) -> RelativeVectors:
        """k^R and scaled q^R by distance.

        Args:
            pos_k: projected rows of P, R×C, or None without this term; see `by_distance`.
            pos_q: the same.
            length: the number of positions.
        """
        for_queries = None
        for_keys = None
        if pos_k is not None:
            for_queries = self.by_distance(pos_k, length, reverse=True)
        if pos_q is not None:
            scale = (self.score_terms * self.shape.head_dim) ** -0.5
            for_keys = self.by_distance(pos_q * scale, length, reverse=self.released)
        return RelativeVectors(for_queries, for_keys)

    def by_distance(self, rows: Tensor, length: int, reverse: bool) -> ByDistance:
        """Vectors by distance j − i from projected rows of P, R×C.

        Args:
            rows: what `rows` gives for this length, projected.
            length: the number of positions.
            reverse: read them at δ(i,j), which descends in j − i; otherwise at δ(j,i).
        """
        near = len(rows) // 2
        exports = is_exporting()
        if self.buckets is None or (not exports and near == length <= len(self.buckets)):
            # One row for each distance
            vectors = per_head(rows, self.shape.num_heads)
            return ByDistance(vectors.flip(1), 1 - near) if reverse else ByDistance(vectors, -near)
        beyond = self.buckets if exports else self.buckets[:length]
        if length > len(self.buckets) and not exports:
            distance = torch.arange(length, device=rows.device)
            beyond = log_buckets(distance, self.rows_a_side, self.relative_clip)
        # Of the distances −(T−1), ..., T − 1
        signed = torch.cat((-beyond[1:].flip(0), beyond))
        index = ((-signed if reverse else signed) + near).clamp(0, 2 * near - 1)
        vectors = per_head(rows.index_select(0, index), self.shape.num_heads)
        return ByDistance(vectors, 1 - len(beyond))

    def for_tokens(self, positions: Tensor, dtype: torch.dtype) -> PositionEncoding | None:
        # Backends read its vectors by the distance of two tokens in a sequence.
        return self

    def build_layer_terms(self) -> DebertaTerms | None:
        if self.terms == "none":
            return None
        return DebertaTerms(self.shape, self.terms, self.shared, self.dropout)

    def embed(
        self, x: Tensor, tokens: object = None, padding_mask: object = None, start: int = 0
    ) -> Tensor:
        if self.absolute_input is None:
            return x
        return x + self.absolute_input[start : start + x.size(1)]

    def position_tables(self) -> dict[str, int]:
        names = ("absolute", "absolute_input")
        return {name: 0 for name in names if getattr(self, name) is not None}

    def before_lm_head(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        if self.absolute is None:
            return x
        return x + (self.absolute[: x.size(1)] if positions is None else self.absolute[positions])

    def rows_reached(self, length: int) -> int:
        """How many rows on each side this length reaches."""
        if self.buckets is None and not is_exporting():
            return min(self.rows_a_side, length)
        if is_exporting() or length > len(self.bucket_of):
            return self.rows_a_side
        return min(self.rows_a_side, self.bucket_of[length - 1] + 1)


def released_options(config: Any) -> dict[str, Any]:
    """Options of the encoding from a configuration of DeBERTa-v2 in transformers."""
    reach = config.max_relative_positions
    terms = config.pos_att_type or []
    return {
        "relative_clip": reach if reach > 0 else config.max_position_embeddings,
        "deberta_released": True,
        "deberta_buckets": max(getattr(config, "position_buckets", -1), 0),
        "deberta_terms": "+".join(each for each in ("c2p", "p2c") if each in terms) or "none",
        "deberta_share": getattr(config, "share_att_key", False),
        "deberta_norm": "layer_norm" in getattr(config, "norm_rel_ebd", "none").lower(),
        "deberta_absolute": config.position_biased_input,
        "deberta_dropout": config.hidden_dropout_prob,
    }


def check_options(terms: str, dropout: float) -> None:
    """Raise a ConfigurationError for unknown terms, or a dropout that is not a probability."""
    if terms not in TERMS:
        raise ConfigurationError(
            f"--deberta-terms is {terms!r}, but must be one of: {' '.join(TERMS)}."
        )
    check_at_least("--deberta-dropout", dropout, 0)
    if dropout >= 1:
        raise ConfigurationError(f"--deberta-dropout is {dropout}, but must be below 1.")


def check_buckets(buckets: int, farthest: int) -> None:
    """Raise a ConfigurationError for numbers for which `log_buckets` is not defined."""
    if buckets < 2 or farthest < buckets // 2 + 2:
        raise ConfigurationError(
            f"--deberta-buckets is {buckets}, but must be 0, or at least 2 and at most twice "
            f"--relative-clip − 4; --relative-clip is {farthest}."
        )


def log_buckets(distance: Tensor, buckets: int, farthest: int) -> Tensor:
    """The bucket of each distance n ≥ 0.

    It is n up to m = buckets // 2, then m + ⌈ln(n/m) / ln((f−1)/m) · (m−1)⌉ with f = `farthest`.
    In fp32, as the released models were trained: exact arithmetic can differ by one bucket.
    """
    middle = buckets // 2
    # Under any default dtype.
    whole = torch.log(torch.tensor((farthest - 1) / middle, dtype=torch.float32))
    steps = torch.log(distance.float().clamp(min=1) / middle) / whole * (middle - 1)
    return torch.where(distance <= middle, distance, steps.ceil().long() + middle)
