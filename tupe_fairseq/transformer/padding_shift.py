"""Batches padded before tokens: fairseq's translation data are padded on the left by default."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..attention import Padding


@dataclass(frozen=True)
class PaddingShift:
    """Moves padding from anywhere in each row to its end, and back.

    Attributes:
        padding: of the batch once it has been moved.
        sources: B×T, the column that each column is filled from; None where nothing moves.
        targets: B×T, the column that each column goes to; None where nothing moves.
        hidden: B×T, True at padding before it is moved; None where nothing moves.
    """

    padding: Padding | None = None
    sources: Tensor | None = None
    targets: Tensor | None = None
    hidden: Tensor | None = None

    @classmethod
    def of(cls, padding: Padding | None) -> "PaddingShift":
        """The shift for a batch; where padding is at the end of each row, nothing moves.

        A graph that torch traces is for any batch, and computes what moves.
        """
        if padding is None:
            return cls()
        is_known = padding.lengths is not None
        if is_known and not (padding.leading or padding.scattered):
            return cls(padding)
        hidden = padding.mask
        shown = ~padding.mask
        after_tokens = shown.sum(1, keepdim=True) + hidden.cumsum(1) - 1
        targets = torch.where(hidden, after_tokens, shown.cumsum(1) - 1)
        # The inverse, by `scatter`, since ONNX has no stable sort.
        columns = torch.arange(hidden.size(1), device=hidden.device).expand_as(targets)
        sources = torch.zeros_like(targets).scatter(1, targets, columns)
        moved = replace(padding, mask=_take(hidden, sources), leading=False, scattered=False)
        return cls(moved, sources, targets, hidden)

    def to_end(self, x: Tensor) -> Tensor:
        """Tokens first: B×T or B×T×C."""
        return _take(x, self.sources)

    def back(self, x: Tensor) -> Tensor:
        """The original order, with 0 at padding: B×T×C.

        In a causal stack, moved padding has seen the whole text.
        """
        x = _take(x, self.targets)
        return x if self.hidden is None else x.masked_fill(self.hidden[:, :, None], 0)

    def weights_to_end(self, weights: Tensor) -> Tensor:
        """As `to_end`, of the queries and keys of attention weights, B×H×T×T."""
        return _take_pairs(weights, self.sources)

    def weights_back(self, weights: Tensor) -> Tensor:
        """As `back`, of the queries and keys of attention weights, B×H×T×T."""
        if self.hidden is None:
            return weights
        weights = _take_pairs(weights, self.targets)
        return weights.masked_fill(self.hidden[:, None, :, None], 0)


def _take(x: Tensor, columns: Tensor | None) -> Tensor:
    if columns is None:
        return x
    if x.dim() == 2:
        return x.gather(1, columns)
    # Whole vectors, which is faster than to gather their elements, most of all in ONNX.
    first = torch.arange(x.size(0), device=x.device)[:, None] * x.size(1)
    return x.flatten(0, 1).index_select(0, (first + columns).flatten()).view_as(x)


def _take_pairs(weights: Tensor, columns: Tensor | None) -> Tensor:
    if columns is None:
        return weights
    heads, length = weights.shape[1:3]
    columns = columns[:, None, None, :].expand(-1, heads, length, -1)
    return weights.gather(3, columns).gather(2, columns.transpose(2, 3))
