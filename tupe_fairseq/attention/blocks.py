"""How blocked attention walks over its cells, in blocks small enough for a processor's cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from .softmax import words

#: Cells of a block: 4 MB in fp32. Smaller blocks cost more calls, larger ones leave the cache.
BLOCK = 1 << 20
#: With fewer cells than this for one head, all heads of a sentence are taken together.
SMALL = 1 << 16
#: Sentences are taken together that have at least this share of the words of the longest.
ALIKE = 0.75


class Group(NamedTuple):
    """M attention matrices of like size: one head of several sentences, or all heads of one.

    Attributes:
        sentences: the sentences, for the padding mask.
        keys: words of the longest.
        head: the head, or None where the matrices are those of all heads.
        index: takes the M matrices from a tensor that begins with B×H.
        matrices: M.
    """

    sentences: slice
    keys: int
    head: int | None
    index: tuple[slice | int, slice | int]
    matrices: int


class Block(NamedTuple):
    """Queries of a group.

    Attributes:
        group: the attention matrices.
        first: the first query.
        rows: number of queries, at most `step`.
        step: queries that a pass over all groups takes.
        words: words of random bits that all earlier blocks take.
    """

    group: Group
    first: int
    rows: int
    step: int
    words: int

    @property
    def cells(self) -> int:
        """Number of its cells."""
        return self.group.matrices * self.rows * self.group.keys

    def cells_of(self, memory: Tensor) -> Tensor:
        """Memory for its cells, M×R×S."""
        return memory[: self.cells].view(-1, self.rows, self.group.keys)

    def queries(self, x: Tensor) -> Tensor:
        """B×H×T×D -> M×R×D."""
        return x[self.group.index][:, self.first : self.first + self.rows]

    def keys(self, x: Tensor) -> Tensor:
        """B×H×T×D -> M×S×D."""
        return x[self.group.index][:, : self.group.keys]

    def bias(self, term: Tensor) -> Tensor:
        """What H×step×T adds to the cells: 1×R×S, the same for all sentences, or M×R×S."""
        head = self.group.head
        heads = term if head is None else term[head : head + 1]
        return heads[:, : self.rows, : self.group.keys]


def walk(heads: int, lengths: Sequence[int]) -> list[list[Block]]:
    """Blocks that cover the cells of all words; those of the same queries are one inner list.

    Args:
        heads: H.
        lengths: words of each sentence, the longest first.
    """
    groups = [
        group
        for start, stop in alike(lengths)
        for group in _groups(start, stop, lengths[start], heads)
    ]
    longest = max(lengths)
    largest = max(group.matrices * group.keys for group in groups)
    step = max(1, min(longest, BLOCK // max(largest, 1)))
    taken, walked = 0, []
    for first in range(0, longest, step):
        walked.append([])
        for group in groups:
            if first < group.keys:
                block = Block(group, first, min(step, group.keys - first), step, taken)
                walked[-1].append(block)
                taken += words(group.matrices * block.rows, group.keys)
    return walked


def alike(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Runs start, ..., stop − 1 of sentences of like length, the longest first."""
    runs, start = [], 0
    for i in range(1, len(lengths) + 1):
        if i == len(lengths) or lengths[i] < ALIKE * lengths[start]:
            runs.append((start, i))
            start = i
    return runs


def _groups(start: int, stop: int, keys: int, heads: int) -> list[Group]:
    count = stop - start
    if count < heads and count * keys * keys < SMALL:
        return [
            Group(slice(i, i + 1), keys, None, (i, slice(None)), heads) for i in range(start, stop)
        ]
    sentences = slice(start, stop)
    return [Group(sentences, keys, head, (sentences, head), count) for head in range(heads)]
