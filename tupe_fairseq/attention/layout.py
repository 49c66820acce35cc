"""Which rows of the layers are words: padding is taken out before them, put back after.

Projections, feed-forward blocks, norms and dropout see N words. Attention sees B×T cells, its
sentences sorted by length, so that a backend may take those of like length together.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

#: Below this share of padding, taking it out costs more than it spares.
WORTHWHILE = 0.1


@dataclass(frozen=True)
class Layout:
    """The words of a batch.

    Attributes:
        batch: B.
        length: T.
        padding_mask: B×T as attention sees it, True at padding, or None where there is none.
        lengths: words of each sentence, the longest first, or None where nothing is taken out.
        words: N, the cell of the batch that each word comes from, or None where nothing is taken
            out.
        cells: N, the cell of attention that each word goes to.
        sources: B·T, the word that goes to each cell of attention; any word at padding.
    """

    batch: int
    length: int
    padding_mask: Tensor | None = None
    lengths: tuple[int, ...] | None = None
    words: Tensor | None = None
    cells: Tensor | None = None
    sources: Tensor | None = None

    @classmethod
    def of(cls, padding_mask: Tensor | None, batch: int, length: int) -> Layout:
        """Take padding out where that is worthwhile.

        Args:
            padding_mask: B×T, True at padding, which stands at the end of each row; or None.
            batch: B.
            length: T.
        """
        if padding_mask is None:
            return cls(batch, length)
        lengths, order = (~padding_mask).sum(1).sort(descending=True, stable=True)
        longest_first = tuple(lengths.tolist())
        if sum(longest_first) > (1 - WORTHWHILE) * batch * length:
            return cls(batch, length, padding_mask)
        device = padding_mask.device
        positions = torch.arange(length, device=device)
        mask = positions >= lengths[:, None]
        cells = (~mask).flatten().nonzero().squeeze(1)
        # Padding reads word 0: what it gives is masked, and finite.
        sources = torch.zeros(mask.numel(), dtype=torch.int64, device=device)
        sources[cells] = torch.arange(len(cells), device=device)
        words = (order[:, None] * length + positions).flatten()[cells]
        return cls(batch, length, mask, longest_first, words, cells, sources)

    def pack(self, x: Tensor) -> Tensor:
        """The words of a batch: B×T×C -> N×C, or as it is where nothing is taken out."""
        return x if self.words is None else x.flatten(0, 1).index_select(0, self.words)

    def unpack(self, x: Tensor) -> Tensor:
        """Back to the batch, with zeros at padding: N×C -> B×T×C."""
        if self.words is None:
            return x
        batch = x.new_zeros(len(self.sources), x.size(-1)).index_copy(0, self.words, x)
        return batch.unflatten(0, (-1, self.length))

    def to_attention(self, x: Tensor) -> Tensor:
        """Words to cells of attention: N×C -> B×T×C, some word's values at padding."""
        if self.words is None:
            return x
        return _Gather.apply(x, self.sources, self.cells).unflatten(0, (-1, self.length))

    def from_attention(self, x: Tensor) -> Tensor:
        """Cells of attention to words: B×T×C -> N×C."""
        if self.words is None:
            return x
        return x.flatten(0, 1).index_select(0, self.cells)


class _Gather(torch.autograd.Function):
    """Cells from words; the gradient of a word is that of its own cell, padding has none."""

    @staticmethod
    def forward(ctx, x, sources, cells):
        ctx.save_for_backward(cells)
        return x.index_select(0, sources)

    @staticmethod
    def backward(ctx, gradient):
        (cells,) = ctx.saved_tensors
        return gradient.index_select(0, cells), None, None
