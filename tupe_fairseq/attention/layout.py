"""Where the tokens of a batch are: padding is taken out before the layers and put back after.

Projections, feed-forward blocks, norms and dropout process N tokens. Attention processes B×T
cells, with the sequences sorted by length, so that a backend can batch those of similar length:

    batch, B×T         tokens, N           attention, B×T
    a b - -    pack                  to_attention    c d e f
    c d e f   ----->   c d e f a b   ----------->    a b - -

Where a backend takes packed tokens, attention processes the N tokens too.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

#: Below this share of padding, taking it out costs more time than it saves where attention gets
#: cells.
WORTHWHILE = 0.1


@dataclass(frozen=True)
class Padding:
    """The padding of a batch.

    Attributes:
        mask: B×T, True at padding.
        lengths: tokens of each sequence, or None while torch traces a graph for any batch.
        leading: whether a sequence begins with padding.
        scattered: whether a sequence has padding with a token right after it.
        inside: whether a sequence has padding between tokens.
    """

    mask: Tensor
    lengths: tuple[int, ...] | None = None
    leading: bool = False
    scattered: bool = False
    inside: bool = False

    @classmethod
    def read(cls, mask: Tensor | None) -> "Padding | None":
        """Read a mask, B×T, with one synchronisation of host and device; None without padding.

        In a sequence of padding alone, the first symbol counts as a token.
        """
        if mask is None:
            return None
        if torch.compiler.is_compiling():
            return cls(mask)
        if not len(mask):
            return None
        before_a_token = mask[:, :-1] & ~mask[:, 1:]
        # B×3: tokens of each sequence, whether it begins with padding, tokens right after padding
        facts = ((~mask).sum(1), mask[:, :1].sum(1), before_a_token.sum(1))
        lengths, leading, scattered = zip(*torch.stack(facts, 1).tolist(), strict=True)
        if sum(lengths) == mask.numel():
            return None
        if 0 in lengths and mask.size(1):
            # So that each row has a first token, which depends on no other row.
            first = torch.arange(mask.size(1), device=mask.device) == 0
            return cls.read(mask & ~(first & mask.all(1, keepdim=True)))
        inside = any(after > first for after, first in zip(scattered, leading, strict=True))
        return cls(mask, lengths, any(leading), any(scattered), inside)


@dataclass(frozen=True)
class Layout:
    """Mapping between the B×T cells of attention and the N tokens without padding.

    Cells are numbered row by row. Where padding stays, the tokens are the cells of the batch:
    `lengths` and all below but `other_queries` are None.

    Attributes:
        batch: B.
        length: keys S of each sequence, which are also its queries unless `other_queries`.
        padding_mask: B×S in the order of attention, True at padding; None without padding.
        lengths: tokens of each sequence, the longest first.
        batch_cells: N, the cell of the batch that each token comes from.
        attention_cells: N, the cell of attention that each token goes to.
        token_of_cell: B·T, the token that each cell of attention reads; at padding, the first
            token of the same sequence.
        positions: N, of the tokens.
        ends: B, the tokens of each sequence of attention and of those before it.
        other_queries: whether queries are at other positions than the keys: a new token in
            incremental decoding, or the target of a translation.
        alone: whether a sequence is attended to as if it were alone, so that rounding does not
            depend on the others.
    """

    batch: int
    length: int
    padding_mask: Tensor | None = None
    lengths: tuple[int, ...] | None = None
    batch_cells: Tensor | None = None
    attention_cells: Tensor | None = None
    token_of_cell: Tensor | None = None
    positions: Tensor | None = None
    ends: Tensor | None = None
    other_queries: bool = False
    alone: bool = False

    @classmethod
    def of(
        cls,
        padding: Padding | None,
        batch: int,
        length: int,
        alone: bool = False,
        packs: bool = False,
    ) -> "Layout":
        """Take padding out where that is worthwhile; nothing here waits for a GPU.

        Args:
            padding: where it is, at one end of each sequence; or None.
            batch: B.
            length: T.
            alone: see the attribute; all padding is taken out then.
            packs: whether attention will get packed tokens; all padding is taken out then.
        """
        if padding is None:
            return cls(batch, length, alone=alone)
        count = sum(padding.lengths or ())
        most = 1 if alone or packs else 1 - WORTHWHILE
        if not padding.lengths or not 0 < count <= most * batch * length:
            return cls(batch, length, padding.mask)
        device = padding.mask.device
        lengths, order = (~padding.mask).sum(1).sort(descending=True, stable=True)
        # N: the row of attention of each token, and its position
        rows = torch.repeat_interleave(lengths, output_size=count)
        ends = lengths.cumsum(0)
        firsts = ends - lengths
        positions = torch.arange(count, device=device) - firsts[rows]
        batch_cells = order[rows] * length + positions
        if padding.leading:
            batch_cells += (~padding.mask).int().argmax(1)[order[rows]]
        attention_cells = rows * length + positions
        # Attention masks what padding reads, but a weight of 0 times NaN is NaN: so padding reads
        # its own sequence.
        token_of_cell = torch.repeat_interleave(firsts, length, output_size=batch * length)
        token_of_cell[attention_cells] = torch.arange(count, device=device)
        mask = torch.arange(length, device=device) >= lengths[:, None]
        longest_first = tuple(sorted(padding.lengths, reverse=True))
        return cls(
            batch,
            length,
            mask,
            longest_first,
            batch_cells,
            attention_cells,
            token_of_cell,
            positions,
            ends,
            alone=alone,
        )

    def packed(self) -> "Layout":
        """The layout of a backend that takes packed tokens, whose sequences are at `ends`.

        It has no lengths on the host, for each of which torch.compile would make a graph.
        """
        return replace(
            self, padding_mask=None, lengths=None, attention_cells=None, token_of_cell=None
        )

    @property
    def is_packed(self) -> bool:
        """Whether attention processes N tokens."""
        return self.ends is not None and self.attention_cells is None

    def pack(self, x: Tensor) -> Tensor:
        """The tokens of a batch: B×T×C -> N×C, or x itself where padding stays."""
        if self.batch_cells is None:
            return x
        return x.flatten(0, 1).index_select(0, self.batch_cells)

    def unpack(self, x: Tensor) -> Tensor:
        """Back to the batch, with zeros at padding: N×C -> B×T×C."""
        if self.batch_cells is None:
            return x
        batch = x.new_zeros(self.batch * self.length, x.size(-1))
        return batch.index_copy(0, self.batch_cells, x).unflatten(0, (-1, self.length))

    def tokens_at(self, cells: Tensor) -> Tensor:
        """The tokens at these cells of the batch, M of N; token 0 at padding."""
        if self.batch_cells is None:
            return cells
        tokens = cells.new_zeros(self.batch * self.length)
        tokens[self.batch_cells] = torch.arange(len(self.batch_cells), device=cells.device)
        return tokens[cells]

    def to_attention(self, x: Tensor) -> Tensor:
        """Tokens to cells of attention: N×C -> B×T×C; padding gets the row's first token.

        Packed tokens are one row, 1×N×C.
        """
        if self.attention_cells is None:
            return x[None] if self.is_packed else x
        cells = _Gather.apply(x, self.token_of_cell, self.attention_cells)
        return cells.unflatten(0, (-1, self.length))

    def per_head(self, x: Tensor, heads: int) -> Tensor:
        """Tokens to cells of attention, by head: N×C or B×T×C -> B×H×T×D, or 1×H×N×D."""
        # Without padding there is nothing to do, in each layer.
        if self.batch_cells is not None:
            x = self.to_attention(x)
        return x.unflatten(-1, (heads, -1)).transpose(1, 2)

    def from_attention(self, x: Tensor) -> Tensor:
        """Cells of attention to tokens: B×T×C or 1×N×C -> N×C."""
        if self.batch_cells is None:
            return x
        if self.attention_cells is None:
            return x.squeeze(0)
        return x.flatten(0, 1).index_select(0, self.attention_cells)


class _Gather(torch.autograd.Function):
    """Cells from tokens; padding passes no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, token_of_cell: Tensor, attention_cells: Tensor) -> Tensor:
        ctx.save_for_backward(attention_cells)
        return x.index_select(0, token_of_cell)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (attention_cells,) = ctx.saved_tensors
        return gradient.index_select(0, attention_cells), None, None
