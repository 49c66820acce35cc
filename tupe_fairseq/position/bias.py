"""What positions add to the attention scores, in factored form, and which keys they hide."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..kernels.native import is_transformed
from .dtypes import without_autocast
from .indices import toeplitz

#: Added to the score of a hidden key: its weight is 0 where the other terms are below 10,000, and
#: fp16 can represent it.
HIDDEN = -1e4


@dataclass(frozen=True)
class Visible:
    """Which keys a query sees, by their distance j − i.

    Attributes:
        causal: later keys are hidden, also from position 0.
        window: farther keys are hidden; None for no window.
        untie_cls: position 0 is an untied [CLS], outside of the window: it sees all keys and all
            queries see it.
    """

    causal: bool = False
    window: int | None = None
    untie_cls: bool = False

    def hides(self, length: int) -> bool:
        """Whether a key is hidden in a sequence of this length, or in a graph for any length."""
        if self.causal or self.window is None:
            return self.causal
        return torch.compiler.is_compiling() or self.window < length - 1

    def reach(self, length: int) -> tuple[int, int]:
        """The lowest and the highest distance that a query sees, apart from an untied [CLS]."""
        farthest = length - 1 if self.window is None else min(self.window, length - 1)
        return -farthest, 0 if self.causal else farthest

    def hide_(self, cells: Tensor, first: int = 0, begin: int = 0) -> Tensor:
        """Hide keys in place, in scores H×R×N of queries first, ... and keys begin, ..."""
        i = torch.arange(first, first + cells.size(-2), device=cells.device)[:, None]
        j = torch.arange(begin, begin + cells.size(-1), device=cells.device)
        hidden = torch.zeros_like(j - i, dtype=torch.bool)
        if self.window is not None:
            hidden = (j - i).abs() > self.window
            if self.untie_cls:
                hidden = hidden & (i > 0) & (j > 0)
        if self.causal:
            hidden = hidden | (j > i)
        return cells.masked_fill_(hidden, HIDDEN)


@dataclass(frozen=True)
class AttentionBias:
    """The positional term of the scores, which layers and sequences share.

    bias_ij = queries_i · keys_j + by_distance[j − i], but cls in row and column 0. Parts that do
    not exist are None. All are fp32 or wider: a rounding error would be the same in every layer.

    Attributes:
        num_keys: S.
        queries: H×T×E, scaled.
        keys: H×S×E.
        by_distance: H×(T+S−1), the value at distance d = j − i at index d + start + T − 1.
        start: position of the first query.
        cls: θ1 and θ2 of an untied [CLS], H×2 (Ke et al., section 3.2): the term where the query
            is at position 0, and the term of other queries where the key is.
        cells: H×T×S, the sum of all parts if it has been computed; the parts are None then.
        exact: H×R×N, the sum of all parts for the first R queries and the first N keys, where it
            differs from what the parts give.
        visible: the keys that are not hidden, for as many queries as keys; None for all. Cells
            have the scores of hidden keys already.
    """

    num_keys: int
    queries: Tensor | None = None
    keys: Tensor | None = None
    by_distance: Tensor | None = None
    start: int = 0
    cls: Tensor | None = None
    cells: Tensor | None = None
    exact: Tensor | None = None
    visible: Visible | None = None

    @property
    def num_queries(self) -> int:
        """T."""
        if self.cells is not None:
            return self.cells.size(1)
        if self.queries is not None:
            return self.queries.size(1)
        assert self.by_distance is not None
        return self.by_distance.size(1) - self.num_keys + 1

    def parts(self) -> dict[str, Any]:
        """The tensors of the term by the names of their fields."""
        names = ("queries", "keys", "by_distance", "cls", "cells", "exact")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def to(self, dtype: torch.dtype) -> "AttentionBias":
        """The same in another dtype."""
        return replace(self, **{name: part.to(dtype) for name, part in self.parts().items()})

    def rows(self, first: int, last: int, keys: slice | None = None) -> Tensor:
        """The term of queries first, ..., last − 1 and of all keys or some, H×(last−first)×S."""
        # `slice.indices` would fix the length of a graph that torch.export traces.
        begin = keys.start if keys else 0
        end = keys.stop if keys else self.num_keys
        if self.cells is not None:
            return self.cells[:, first:last, begin:end]
        rows = self._sum(first, last, begin, end)
        if self.cls is not None:
            rows = _untied(rows, self.cls, self.start + first == 0, begin == 0)
        if self.exact is not None:
            part = self.exact[:, first:last, begin:end]
            rows[:, : part.size(1), : part.size(2)] = part
        return rows if self.visible is None else self.visible.hide_(rows, first, begin)

    def row(self, position: int) -> "AttentionBias":
        """The term of the query at a position, and of the keys up to it."""
        cells = self.rows(position, position + 1, slice(0, position + 1))
        return AttentionBias(position + 1, cells=cells, start=position)

    def _sum(self, first: int, last: int, begin: int, end: int) -> Tensor:
        """The product and the part by distance, H×(last−first)×(end−begin)."""
        relative = None
        if self.by_distance is not None:
            start = self.num_queries - last + begin
            stop = self.num_queries - first + end - 1
            relative = toeplitz(self.by_distance[:, start:stop], end - begin)
        if self.queries is None or self.keys is None:
            assert relative is not None
            return relative
        # Not in half precision under autocast. H×R×E · H×E×S -> H×R×S
        with without_autocast(self.queries.device.type):
            product = self.queries[:, first:last] @ self.keys[:, begin:end].transpose(1, 2)
        return product if relative is None else product + relative

    def dense(self) -> Tensor:
        """The term as a tensor, H×T×S."""
        return self.rows(0, self.num_queries)

    def computed(self) -> "AttentionBias":
        """The same with its cells in place of the parts."""
        parts: dict[str, Any] = dict.fromkeys(("queries", "keys", "by_distance", "cls", "exact"))
        return replace(self, cells=self.dense(), **parts)

    def hiding(self, visible: Visible) -> "AttentionBias":
        """The same for T queries and as many keys, some of them hidden."""
        if self.cells is None:
            return replace(self, visible=visible)
        return replace(self, cells=visible.hide_(self.cells.clone()), visible=visible)

    def vectors(self) -> tuple[Tensor, Tensor]:
        """Queries, H×T×E, and keys, H×S×E, whose product is the term; it has no part by distance.

        With an untied [CLS], their vectors at position 0 become 0, and two more dimensions add θ1
        to row 0 and θ2 to column 0.
        """
        q, k = self.queries, self.keys
        assert q is not None
        assert k is not None
        if self.cls is None:
            return q, k
        from_cls, to_cls = (x[:, None, None] for x in self.cls.unbind(-1))
        # Whether a query or a key is [CLS], 1×T×1 and 1×S×1.
        positions = torch.arange(self.start + max(q.size(1), k.size(1)), device=q.device)
        is_cls = (positions == 0)[None, :, None]
        of_queries = is_cls[:, self.start : self.start + q.size(1)]
        of_keys = is_cls[:, : k.size(1)]
        other_queries = q.masked_fill(of_queries, 0)
        other_keys = k.masked_fill(of_keys, 0)
        column = to_cls.expand(-1, q.size(1), -1).masked_fill(of_queries, 0)
        row = from_cls.expand(-1, k.size(1), -1)
        is_query = of_queries.to(q.dtype).expand(len(q), -1, -1)
        is_key = of_keys.to(k.dtype).expand(len(k), -1, -1)
        queries = torch.cat((other_queries, column, is_query), -1)
        return queries, torch.cat((other_keys, is_key, row), -1)


def _untied(rows: Tensor, cls: Tensor, has_row: bool, has_column: bool) -> Tensor:
    """Rows of a term, H×R×S, with θ1 in row 0 and θ2 in column 0 of the others; `cls` is H×2."""
    if not (torch.compiler.is_compiling() or is_transformed()):
        return _Untied.apply(rows, cls, has_row, has_column)
    # A graph is for any length, and a slice without [CLS] would be for two tokens or more.
    if has_column:
        is_column = torch.arange(rows.size(2), device=rows.device) == 0
        rows = torch.where(is_column, cls[:, 1:, None], rows)
    if has_row:
        is_row = torch.arange(rows.size(1), device=rows.device)[:, None] == 0
        rows = torch.where(is_row, cls[:, :1, None], rows)
    return rows


class _Untied(torch.autograd.Function):
    """The same in few operators."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, cls: Tensor, has_row: bool, has_column: bool) -> Tensor:
        ctx.has = has_row, has_column
        rows = rows.clone()
        if has_row:
            rows[:, 0] = cls[:, :1]
        if has_column:
            rows[:, has_row:, 0] = cls[:, 1:]
        return rows

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        has_row, has_column = ctx.has
        others = gradient.clone()
        row = gradient[:, : int(has_row)].sum((1, 2))
        column = gradient[:, has_row:, : int(has_column)].sum((1, 2))
        if has_row:
            others[:, 0].zero_()
        if has_column:
            others[:, :, 0].zero_()
        return others, torch.stack((row, column), -1), None, None
