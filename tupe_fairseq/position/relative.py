"""Vectors by distance, which backends multiply by queries, keys and attention weights."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..base.tracing import is_exporting, known


@dataclass(frozen=True)
class ByDistance:
    """A vector for each distance d = j − i; distances beyond either end read the last row there.

    Attributes:
        vectors: H×W×D, or 1×W×D where the heads share them; row w belongs to d = first + w.
        first: the distance of row 0.
    """

    vectors: Tensor
    first: int

    def reached(self, nearest: int, farthest: int) -> tuple[int, int]:
        """Rows start, ..., stop − 1 that the distances nearest, ..., farthest read."""
        last = self.vectors.size(1) - 1
        start = min(max(nearest - self.first, 0), last)
        stop = min(max(farthest - self.first, 0), last) + 1
        return start, stop

    def within(self, queries: int, keys: int, start: int = 0) -> "ByDistance":
        """The rows that T queries from position `start` on and S keys read.

        Where torch exports a program for every length, all rows are kept if some length reads
        an end of them.
        """
        nearest = -(start + queries - 1)
        farthest = keys - 1 - start
        if is_exporting():
            last = self.first + self.vectors.size(1) - 1
            if not (known(nearest >= self.first) and known(farthest <= last)):
                return self
            first = nearest - self.first
            stop = farthest - self.first + 1
        else:
            first, stop = self.reached(nearest, farthest)
        return ByDistance(self.vectors[:, first:stop], self.first + first)

    @property
    def table(self) -> Tensor:
        """The vectors, H×W×D, or W×D where the heads share them: then one product serves all."""
        return self.vectors[0] if len(self.vectors) == 1 else self.vectors

    def products_of_queries(self, q: Tensor, keys: int, start: int = 0) -> Tensor:
        """q_i · vector_{j−i}: B×H×T×D -> B×H×T×S."""
        queries = q.size(2)
        near = self.within(queries, keys, start)
        # B×H×T×W
        products = q @ near.table.mT
        if not is_exporting() and products.size(-1) == queries + keys - 1:
            return relative_shift(products, keys)
        return products.gather(-1, near._rows(q, queries, keys, start))

    def products_of_keys(self, k: Tensor, queries: int, start: int = 0) -> Tensor:
        """k_j · vector_{j−i}: B×H×S×D -> B×H×T×S."""
        keys = k.size(2)
        near = self.within(queries, keys, start)
        # B×H×S×W -> B×H×S×T
        return (k @ near.table.mT).gather(-1, near._rows(k, queries, keys, start).mT).mT

    def weighted_sum(self, weights: Tensor, start: int = 0) -> Tensor:
        """Σ_j weight_ij vector_{j−i}: B×H×T×S -> B×H×T×D."""
        queries, keys = weights.shape[2:]
        near = self.within(queries, keys, start)
        # The sum of the weights of each row, B×H×T×W.
        sums = weights.new_zeros(*weights.shape[:-1], near.vectors.size(1))
        return (
            sums.scatter_add(-1, near._rows(weights, queries, keys, start), weights) @ near.table
        )

    def _rows(self, like: Tensor, queries: int, keys: int, start: int) -> Tensor:
        """The row for each query and key, expanded to the batch and heads of a tensor: B×H×T×S."""
        i = torch.arange(start, start + queries, device=like.device)[:, None]
        j = torch.arange(keys, device=like.device)
        rows = (j - i - self.first).clamp(0, self.vectors.size(1) - 1)
        return rows.expand(*like.shape[:2], queries, keys)


def relative_shift(by_distance: Tensor, keys: int) -> Tensor:
    """Values by query and distance to values by query and key: ...×T×(T+S−1) -> ...×T×S.

    Here each query has values of its own; in `indices.toeplitz` all share one for each distance.
    Distances ascend as `indices.distances` gives them, so (i, j) reads column j − i + T − 1. In
    the flattened tensor that is i·(T+S−2) + j + T − 1: a view with rows one column shorter does it
    without a gather.
    """
    queries, columns = by_distance.shape[-2:]
    if queries == 1:
        return by_distance
    flat = by_distance.flatten(-2)[..., queries - 1 : queries * columns - 1]
    return flat.unflatten(-1, (queries, columns - 1))[..., :keys]


@dataclass(frozen=True)
class RelativeVectors:
    """What a layer adds to scores and output.

    score_ij += (q_i + query_bias)·a_{j−i} + k_j·b_{j−i} + k_j·key_bias and
    output_i += Σ_j weight_ij c_{j−i}. Parts that an encoding does not have are None.

    Attributes:
        for_queries: the vectors a.
        for_keys: the vectors b.
        for_values: the vectors c.
        query_bias: H×1×D.
        key_bias: H×1×D.
    """

    for_queries: ByDistance | None = None
    for_keys: ByDistance | None = None
    for_values: ByDistance | None = None
    query_bias: Tensor | None = None
    key_bias: Tensor | None = None

    def biased(self, q: Tensor) -> Tensor:
        """The queries, B×H×T×D, that are multiplied by the vectors a."""
        return q if self.query_bias is None else q + self.query_bias

    def scores(self, q: Tensor, k: Tensor, start: int = 0) -> Tensor:
        """The terms of the scores of queries B×H×T×D and keys B×H×S×D: B×H×T×S."""
        parts = []
        if self.for_queries is not None:
            parts.append(self.for_queries.products_of_queries(self.biased(q), k.size(2), start))
        if self.for_keys is not None:
            parts.append(self.for_keys.products_of_keys(k, q.size(2), start))
        if self.key_bias is not None:
            parts.append(self.key_bias @ k.mT)
        return sum(parts[1:], parts[0])


class FixedVectors(nn.Module):
    """Vectors by distance for queries and keys, of constant weights: computed once.

    Args:
        vectors: of so many positions that they serve all lengths.
    """

    def __init__(self, vectors: RelativeVectors):
        super().__init__()
        self.firsts = {}
        for name in ("for_queries", "for_keys"):
            by_distance: ByDistance | None = getattr(vectors, name)
            if by_distance is not None:
                buffer = by_distance.vectors.contiguous()
                self.register_buffer(name, buffer, persistent=False)
                self.firsts[name] = by_distance.first

    def within(self, length: int) -> RelativeVectors:
        """The vectors for the distances among T positions."""
        parts: dict[str, Any] = {
            name: ByDistance(self.get_buffer(name), first).within(length, length)
            for name, first in self.firsts.items()
        }
        return RelativeVectors(**parts)
