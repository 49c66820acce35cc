"""How blocked attention divides its cells into blocks small enough for a processor's cache.

Attention matrices of similar size are a group. Their cells are computed in blocks of consecutive
queries. Where keys are hidden, a block has only the keys that one of its queries can see:

                         keys
                . . . . . . . . . .
    queries     . # # # # # . . . .   a block of 3 queries with a window of 1:
                . # # # # # . . . .   rows = 3, num_keys = 5
                . # # # # # . . . .
                . . . . . . . . . .
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..kernels.random_bits import words_per_mask
from ..position.bias import AttentionBias

#: Cells of a block: 4 MB in fp32. Smaller blocks cost more calls, larger ones leave the cache.
BLOCK = 1 << 20
#: Hidden keys make blocks narrow, but not below this number of queries: products of fewer rows
#: are slow.
NARROW = 64
#: Sequences are batched if each has at least this share of the tokens of the longest.
SIMILAR = 0.75


#: Arguments of `kernels.products.multiply`.
Product = tuple[Tensor, Tensor, Tensor, bool]


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
        """Number of matrices M."""
        heads = self.heads
        sequences = self.sequences
        return (heads.stop - heads.start) * (sequences.stop - sequences.start)

    def matrices_of(self, x: Tensor) -> Tensor:
        """H×B×T×D -> M×T×D, a view."""
        return x[self.heads, self.sequences].view(self.matrices, *x.shape[2:])


class Block(NamedTuple):
    """Consecutive queries of a group.

    Attributes:
        group: the attention matrices.
        first: the first query.
        rows: number of queries R.
        first_key: the first of the consecutive keys that these queries can see.
        num_keys: number of keys S, [CLS] included if cls_in_front.
        first_word: counter of the first random word of its dropout mask.
        cls_in_front: whether [CLS], key 0, is in front of the consecutive keys, as one key more.
    """

    group: Group
    first: int
    rows: int
    first_key: int
    num_keys: int
    first_word: int
    cls_in_front: bool = False

    @property
    def cells(self) -> int:
        """Number of its cells."""
        return self.group.matrices * self.rows * self.num_keys

    def cells_in(self, workspace: Tensor) -> Tensor:
        """Memory for its cells, M×R×S."""
        return workspace[: self.cells].view(-1, self.rows, self.num_keys)

    def queries(self, x: Tensor) -> Tensor:
        """H×B×T×D -> M×R×D."""
        return self.group.matrices_of(x)[:, self.first : self.first + self.rows]

    @property
    def spans(self) -> list[tuple[slice, slice]]:
        """Columns of the cells, and the consecutive keys that they belong to.

        For example with [CLS] before the keys 7, 8 and 9 (num_keys = 4, cls_in_front):

            columns   0 | 1 2 3
            keys      0 | 7 8 9
        """
        count = self.num_keys - self.cls_in_front
        near = slice(self.first_key, self.first_key + count)
        if not self.cls_in_front:
            return [(slice(0, count), near)]
        return [(slice(0, 1), slice(0, 1)), (slice(1, self.num_keys), near)]

    def keys(self, x: Tensor) -> list[tuple[slice, Tensor]]:
        """The keys by their columns: H×B×T×D -> views M×S×D."""
        matrices = self.group.matrices_of(x)
        return [(columns, matrices[:, keys]) for columns, keys in self.spans]

    def products_with_keys(self, rows: Tensor, x: Tensor, cells: Tensor) -> list[Product]:
        """Products of rows, M×R×D, with the keys of x, H×B×T×D, written to cells, M×R×S."""
        return [(rows, keys.mT, cells[..., at], False) for at, keys in self.keys(x)]

    def sums_over_keys(self, cells: Tensor, x: Tensor, out: Tensor) -> list[Product]:
        """Cells, M×R×S, times the keys of x, H×B×T×D, written to out, M×R×D."""
        return [(cells[..., at], keys, out, at.start > 0) for at, keys in self.keys(x)]

    def sums_over_queries(
        self, cells: Tensor, rows: Tensor, out: Tensor, accumulate: bool
    ) -> list[Product]:
        """Cells, M×R×S, times rows, M×R×D, written or added to the keys of out, H×B×T×D."""
        return [(cells[..., at].mT, rows, keys, accumulate) for at, keys in self.keys(out)]

    def rows_of(self, bias: AttentionBias) -> Tensor:
        """The term of its queries and keys in all heads: H×R×S; a view where that is possible."""
        last = self.first + self.rows
        return joined([bias.rows(self.first, last, keys) for _, keys in self.spans])

    def padding_of(self, padding: Tensor) -> Tensor:
        """The part of a score by sequence and key that belongs to its cells: B×1×T -> P×1×S."""
        in_group = padding[self.group.sequences]
        return joined([in_group[..., keys] for _, keys in self.spans])

    def part_of(self, rows: Tensor) -> Tensor:
        """Its part of the rows of the largest block of the same queries: H×R×S -> G×R×S.

        Both begin at the same query and the same key.
        """
        return rows[self.group.heads, : self.rows, : self.num_keys]


def joined(parts: list[Tensor]) -> Tensor:
    """Tensors side by side."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


@dataclass(frozen=True)
class Blocks:
    """What all layers share.

    Attributes:
        blocks: the blocks; each inner list has those of the same queries, the largest first.
        bias: what positions add to the scores, or None.
        cells: the bias as H×T×T, if it has been computed.
        padding: 0 at tokens, `HIDDEN` at padding, B×1×T, or None.
        workspace: memory for the cells of two blocks, 2×cells.
        share: of the cells, those in blocks; the others are padding or hidden.
        visible: the lowest and the highest distance of keys that a query sees; or None for all.
        untie_cls: whether [CLS] is outside of the window: query 0 sees all keys, and all queries
            see key 0.
        lengths: tokens of each sequence, or None where padding is anywhere or nowhere.
        by_torch: whether torch's fused kernel is faster, without dropout and vectors by distance.
        by_kernel: whether the kernel in C is still faster, where there is one.
        natively: whether torch's fused kernel is the fastest in half precision.
    """

    blocks: list[list[Block]]
    bias: AttentionBias | None
    cells: Tensor | None
    padding: Tensor | None
    workspace: Tensor
    share: float
    visible: tuple[int, int] | None = None
    untie_cls: bool = False
    lengths: tuple[int, ...] | None = None
    by_torch: bool = False
    by_kernel: bool = False
    natively: bool = False

    @property
    def hides(self) -> bool:
        """Whether keys are hidden by their distance, so that blocks leave some out."""
        return self.visible is not None

    def empty_like(self, x: Tensor) -> Tensor:
        """Memory for the blocks' results; 0 where they may add to it, or leave out padding."""
        whole = self.padding is None and not self.hides
        return torch.empty_like(x) if whole else torch.zeros_like(x)


def split_into_blocks(
    heads: int,
    lengths: Sequence[int],
    visible: tuple[int, int] | None = None,
    untie_cls: bool = False,
    first_sequence: int = 0,
) -> list[list[Block]]:
    """Blocks that cover the visible cells of all tokens; each inner list has the same queries.

    Those of a small batch cover its padding too.

    Args:
        heads: H.
        lengths: tokens of each sequence, the longest first.
        visible: the lowest and the highest distance j − i of keys that a query i can see, at most
            and at least 0; or None for all keys.
        untie_cls: whether [CLS] is outside of the window: query 0 sees all keys, and all queries
            see key 0.
        first_sequence: the one that the first length belongs to.
    """
    longest = max(lengths)
    low, high = visible or (-longest, longest)
    # A block computes more cells than its queries see, and the fewer queries the fewer of these.
    sees = min(high, longest) - max(low, -longest)
    most_rows = longest if visible is None else min(longest, max(NARROW, sees // 4))
    most_keys = min(longest, most_rows + high - low + untie_cls)
    groups = [
        group
        for start, stop in batched(heads, lengths, visible is not None)
        for group in _groups(heads, start, stop, lengths, most_rows * most_keys, first_sequence)
    ]
    largest = max(group.matrices * min(group.keys, most_keys) for group in groups)
    step = max(1, min(most_rows, BLOCK // max(largest, 1)))
    word = 0
    blocks: list[list[Block]] = []
    # A query that sees all keys has blocks of its own.
    firsts = [0, *range(1, longest, step)] if untie_cls else range(0, longest, step)
    for first in firsts:
        is_cls = untie_cls and first == 0
        blocks.append([])
        for group in groups:
            if first < group.keys:
                rows = 1 if is_cls else min(step, group.keys - first)
                first_key = max(0, first + low)
                cls_in_front = untie_cls and first_key > 0
                last = group.keys if is_cls else min(group.keys, first + rows + high)
                count = last - first_key + cls_in_front
                blocks[-1].append(Block(group, first, rows, first_key, count, word, cls_in_front))
                word += words_per_mask(group.matrices * rows, count)
    return blocks


def batched(heads: int, lengths: Sequence[int], hides: bool) -> list[tuple[int, int]]:
    """Runs start, ..., stop − 1 of sequences of similar length, the longest first.

    A small batch is one run, unless keys are hidden (`hides`): calls for each run take longer than
    the cells of padding.
    """
    if not hides and heads * len(lengths) * lengths[0] ** 2 <= BLOCK:
        return [(0, len(lengths))]
    runs = []
    start = 0
    for i in range(1, len(lengths) + 1):
        if i == len(lengths) or lengths[i] < SIMILAR * lengths[start]:
            runs.append((start, i))
            start = i
    return runs


def _groups(
    heads: int, start: int, stop: int, lengths: Sequence[int], cells: int, first_sequence: int
) -> list[Group]:
    """Groups of sequences start, ..., stop − 1; `cells` is what a block has of each matrix."""
    count = stop - start
    keys = lengths[start]
    together = 1
    if count in (1, len(lengths)):
        together = max(1, BLOCK // max(count * min(cells, keys * keys), 1))
    sequences = slice(first_sequence + start, first_sequence + stop)
    return [
        Group(slice(head, min(head + together, heads)), sequences, keys)
        for head in range(0, heads, together)
    ]
