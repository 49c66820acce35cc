"""What positions add to the attention scores, in factored form."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .indices import toeplitz

#: Added to the score of a hidden key: its weight is 0 where the other terms are below 10,000, and
#: fp16 can represent it.
HIDDEN = -1e4


@dataclass(frozen=True)
class AttentionBias:
    """What positions alone add to the scores; layers and sequences share it.

    bias_ij = queries_i · keys_j + by_distance[j − i]. Parts that do not exist are None. All
    are fp32 or wider: a rounding error would be the same in every layer.

    Attributes:
        num_keys: S.
        queries: H×T×E, scaled.
        keys: H×S×E.
        by_distance: H×(T+S−1), the value at distance d = j − i at index d + start + T − 1.
        start: position of the first query.
        cells: H×T×S, the sum of all parts if it has been computed; the parts are None then.
        visible: the lowest and the highest distance j − i of keys that are not hidden, for as many
            queries as keys; None if none are hidden by their distance.
        window: `rows` hides keys farther away, but none from position 0 and not position 0. With
            it, `visible` is about the other positions. None without such a window.
        exact: H×R×N, the sum of all parts for the first R queries and the first N keys, where it
            differs from what the parts give.
        factor: H×(T+S−1) by distance, as by_distance: attention weights are multiplied by it after
            the softmax. An encoding that has one says `multiplies_weights`.
        temperature: T×1, what `rows` multiplies the sum of the parts by; or None.
    """

    num_keys: int
    queries: Tensor | None = None
    keys: Tensor | None = None
    by_distance: Tensor | None = None
    start: int = 0
    cells: Tensor | None = None
    visible: tuple[int, int] | None = None
    window: int | None = None
    exact: Tensor | None = None
    factor: Tensor | None = None
    temperature: Tensor | None = None

    @property
    def num_queries(self) -> int:
        """T."""
        if self.cells is not None:
            return self.cells.size(1)
        if self.queries is not None:
            return self.queries.size(1)
        assert self.by_distance is not None
        return self.by_distance.size(1) - self.num_keys + 1

    @property
    def has_cls(self) -> bool:
        """Whether position 0 is visible beyond the window."""
        return self.window is not None and self.window < self.num_keys - 1

    def parts(self) -> dict[str, Any]:
        """The tensors of the term by the names of their fields."""
        names = ("queries", "keys", "by_distance", "cells", "exact", "factor")
        return {name: part for name in names if (part := getattr(self, name)) is not None}

    def factors(self) -> "AttentionBias | None":
        """The factor, whose rows and cells are read as those of a term."""
        if self.factor is None:
            return None
        return AttentionBias(self.num_keys, by_distance=self.factor, start=self.start)

    def to(self, dtype: torch.dtype) -> "AttentionBias":
        """The same in another dtype."""
        return replace(self, **{name: part.to(dtype) for name, part in self.parts().items()})

    def rows(self, first: int, last: int, keys: slice | None = None) -> Tensor:
        """The term of queries first, ..., last − 1 and of all keys or some, H×(last−first)×S."""
        # `slice.indices` would fix the length of a graph that torch.export traces.
        begin, end = (keys.start, keys.stop) if keys else (0, self.num_keys)
        if self.cells is not None:
            return self.cells[:, first:last, begin:end]
        found = self._sum(first, last, begin, end)
        if self.exact is not None:
            part = self.exact[:, first:last, begin:end]
            found[:, : part.size(1), : part.size(2)] = part
        if self.temperature is not None:
            found = found * self.temperature[first:last].to(found.dtype)
        return found if self.window is None else hide_outside(found, self.window, first, begin)

    def _sum(self, first: int, last: int, begin: int, end: int) -> Tensor:
        """The product and the part by distance, H×(last−first)×(end−begin)."""
        relative = None
        if self.by_distance is not None:
            start, stop = self.num_queries - last + begin, self.num_queries - first + end - 1
            relative = toeplitz(self.by_distance[:, start:stop], end - begin)
        if self.queries is None or self.keys is None:
            assert relative is not None
            return relative
        # H×R×E · H×E×S -> H×R×S
        found = self.queries[:, first:last] @ self.keys[:, begin:end].transpose(1, 2)
        return found if relative is None else found + relative

    def dense(self) -> Tensor:
        """The term as a tensor, H×T×S."""
        return self.rows(0, self.num_queries)

    def computed(self) -> "AttentionBias":
        """The same with its cells in place of the parts."""
        parts: dict[str, Any] = dict.fromkeys(("queries", "keys", "by_distance", "exact"))
        return replace(self, cells=self.dense(), temperature=None, **parts)

    def times(self, temperature: Tensor) -> "AttentionBias":
        """The term multiplied by a factor of each query, T×1; it stays a product of vectors."""
        if self.by_distance is not None or self.exact is not None:
            return replace(self, temperature=temperature)
        name = "queries" if self.cells is None else "cells"
        part = getattr(self, name)
        return replace(self, **{name: part * temperature.to(part.dtype)})

    def with_untied_cls(self, from_cls: Tensor, to_cls: Tensor) -> "AttentionBias":
        """Reset what involves [CLS], at position 0 (Ke et al., ICLR 2021, section 3.2).

        Row 0 becomes θ1 (`from_cls`, H) and column 0 of the other rows θ2 (`to_cls`, H), whatever
        was there. Two more dimensions of queries and keys do it, so that the term stays a product:
        position 0 has no vector, one dimension gives θ2 − b_{−i} to column 0, the other θ1 − b_j
        to row 0, and the relative part b leaves θ of them.
        """
        assert self.queries is not None
        assert self.keys is not None
        heads, queries, _ = self.queries.shape
        row = from_cls[:, None].expand(heads, self.num_keys)
        column = to_cls[:, None].expand(heads, queries)
        if self.by_distance is not None:
            # Distances from the first query to all keys, and from all queries to the first key.
            row = row - self.by_distance[:, queries - 1 :]
            column = column - self.by_distance[:, :queries].flip(1)
        # 1 at position 0, 0 at others, as a dimension of queries and of keys: H×T×1, H×S×1.
        positions = torch.arange(self.start + max(queries, self.num_keys), device=row.device)
        is_cls = (positions == 0).to(row.dtype)[None, :, None].expand(heads, -1, -1)
        query_is_cls = is_cls[:, self.start : self.start + queries]
        key_is_cls = is_cls[:, : self.num_keys]
        other = 1 - query_is_cls
        added = column[:, :, None] * other, query_is_cls
        return replace(
            self,
            queries=torch.cat((self.queries * other, *added), -1),
            keys=torch.cat((self.keys * (1 - key_is_cls), key_is_cls, row[:, :, None]), -1),
        )

    def hide(self, mask: Tensor, visible: tuple[int, int], window: int | None) -> "AttentionBias":
        """The same for T queries and as many keys, some hidden by their distance.

        Args:
            mask: what is added to the scores by distance, H×(2T−1).
            visible: see the attribute.
            window: that of the attribute; mask has no part in it.
        """
        if self.cells is not None:
            cells = self.cells + toeplitz(mask, self.num_keys)
            cells = cells if window is None else hide_outside(cells, window)
            return replace(self, cells=cells, visible=visible, window=window)
        exact = self.exact
        if exact is not None:
            # `mask` has distance d at index d + T − 1.
            queries, keys = exact.shape[1:]
            near = slice(self.num_keys - queries, self.num_keys + keys - 1)
            exact = exact + toeplitz(mask[:, near], keys)
        if self.by_distance is not None:
            mask = self.by_distance + mask
        return replace(self, by_distance=mask, exact=exact, visible=visible, window=window)


def hide_outside(cells: Tensor, window: int, first: int = 0, begin: int = 0) -> Tensor:
    """Hide keys outside of a window, in place, but none from position 0 and not position 0.

    Args:
        cells: scores H×R×N of queries first, ... and keys begin, ...
        window: the largest visible distance.
        first: position of the first query.
        begin: position of the first key.
    """
    i = torch.arange(first, first + cells.size(-2), device=cells.device)[:, None]
    j = torch.arange(begin, begin + cells.size(-1), device=cells.device)
    hidden = ((j - i).abs() > window) & (i > 0) & (j > 0)
    return cells.masked_fill_(hidden, HIDDEN)
