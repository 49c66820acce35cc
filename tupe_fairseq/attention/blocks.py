"""How blocked attention divides its cells into blocks small enough for a processor's cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from ..kernels.random_bits import words_per_mask

#: Cells of a block: 4 MB in fp32. Smaller blocks cost more calls, larger ones leave the cache.
BLOCK = 1 << 20
#: Sequences are batched if each has at least this share of the tokens of the longest.
SIMILAR = 0.75


class Group(NamedTuple):
    """M attention matrices of similar size, consecutive in tensors H×B×T×D.

    Several sequences of one head, or several heads of one sequence or of the whole batch.

    Attributes:
        heads: the heads.
        sequences: the sequences.
        keys: tokens of the longest.
    """

    heads: slice
    sequences: slice
    keys: int

    @property
    def matrices(self) -> int:
        """M."""
        heads, sequences = self.heads, self.sequences
        return (heads.stop - heads.start) * (sequences.stop - sequences.start)

    def matrices_of(self, x: Tensor) -> Tensor:
        """H×B×T×D -> M×T×D, a view."""
        return x[self.heads, self.sequences].view(self.matrices, *x.shape[2:])


class Block(NamedTuple):
    """Consecutive queries of a group.

    Attributes:
        group: the attention matrices.
        first: the first query.
        rows: number of queries, at most `step`.
        step: queries of a full block.
        first_word: counter of the first random word of its dropout mask.
    """

    group: Group
    first: int
    rows: int
    step: int
    first_word: int

    @property
    def cells(self) -> int:
        """Number of its cells."""
        return self.group.matrices * self.rows * self.group.keys

    def cells_of(self, memory: Tensor) -> Tensor:
        """Memory for its cells, M×R×S."""
        return memory[: self.cells].view(-1, self.rows, self.group.keys)

    def queries(self, x: Tensor) -> Tensor:
        """H×B×T×D -> M×R×D."""
        return self.group.matrices_of(x)[:, self.first : self.first + self.rows]

    def keys(self, x: Tensor) -> Tensor:
        """H×B×T×D -> M×S×D."""
        return self.group.matrices_of(x)[:, : self.group.keys]

    def bias(self, term: Tensor) -> Tensor:
        """The part of a term, H×step×T, that belongs to its cells: G×R×S, G heads."""
        return term[self.group.heads, : self.rows, : self.group.keys]


def split_into_blocks(heads: int, lengths: Sequence[int]) -> list[list[Block]]:
    """Blocks that cover the cells of all tokens; each inner list has those of the same queries.

    Args:
        heads: H.
        lengths: tokens of each sequence, the longest first.
    """
    groups = [
        group
        for start, stop in similar(lengths)
        for group in _groups(heads, slice(start, stop), lengths[start], len(lengths))
    ]
    longest = max(lengths)
    largest = max(group.matrices * group.keys for group in groups)
    step = max(1, min(longest, BLOCK // max(largest, 1)))
    word = 0
    blocks: list[list[Block]] = []
    for first in range(0, longest, step):
        blocks.append([])
        for group in groups:
            if first < group.keys:
                block = Block(group, first, min(step, group.keys - first), step, word)
                blocks[-1].append(block)
                word += words_per_mask(group.matrices * block.rows, group.keys)
    return blocks


def similar(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Runs start, ..., stop − 1 of sequences of similar length, the longest first."""
    runs, start = [], 0
    for i in range(1, len(lengths) + 1):
        if i == len(lengths) or lengths[i] < SIMILAR * lengths[start]:
            runs.append((start, i))
            start = i
    return runs


def _groups(heads: int, sequences: slice, keys: int, batch: int) -> list[Group]:
    count = sequences.stop - sequences.start
    together = 1
    if count in (1, batch):
        together = max(1, BLOCK // max(count * keys * keys, 1))
    return [
        Group(slice(head, min(head + together, heads)), sequences, keys)
        for head in range(0, heads, together)
    ]
