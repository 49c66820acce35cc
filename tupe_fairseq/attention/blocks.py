"""How blocked attention walks over its cells, in blocks small enough for a processor's cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from ..kernels.softmax import words

#: Cells of a block: 4 MB in fp32. Smaller blocks cost more calls, larger ones leave the cache.
BLOCK = 1 << 20
#: Sentences are taken together that have at least this share of the words of the longest.
ALIKE = 0.75


class Group(NamedTuple):
    """M attention matrices of like size, which stand side by side in tensors H×B×T×D.

    Several sentences of one head, or several heads of one sentence or of the whole batch.

    Attributes:
        heads: the heads.
        sentences: the sentences.
        keys: words of the longest.
    """

    heads: slice
    sentences: slice
    keys: int

    @property
    def matrices(self) -> int:
        """M."""
        heads, sentences = self.heads, self.sentences
        return (heads.stop - heads.start) * (sentences.stop - sentences.start)

    def matrices_of(self, x: Tensor) -> Tensor:
        """H×B×T×D -> M×T×D, a view."""
        return x[self.heads, self.sentences].view(self.matrices, *x.shape[2:])


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
        """H×B×T×D -> M×R×D."""
        return self.group.matrices_of(x)[:, self.first : self.first + self.rows]

    def keys(self, x: Tensor) -> Tensor:
        """H×B×T×D -> M×S×D."""
        return self.group.matrices_of(x)[:, : self.group.keys]

    def bias(self, term: Tensor) -> Tensor:
        """What H×step×T adds to the cells of each of the group's heads, G×R×S."""
        return term[self.group.heads, : self.rows, : self.group.keys]


def walk(heads: int, lengths: Sequence[int]) -> list[list[Block]]:
    """Blocks that cover the cells of all words; those of the same queries are one inner list.

    Args:
        heads: H.
        lengths: words of each sentence, the longest first.
    """
    groups = [
        group
        for start, stop in alike(lengths)
        for group in _groups(heads, slice(start, stop), lengths[start], len(lengths))
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


def _groups(heads: int, sentences: slice, keys: int, batch: int) -> list[Group]:
    count = sentences.stop - sentences.start
    together = 1
    if count in (1, batch):
        together = max(1, BLOCK // max(count * keys * keys, 1))
    return [
        Group(slice(head, min(head + together, heads)), sentences, keys)
        for head in range(0, heads, together)
    ]
