"""Scores that depend on content and on the distance of query and key; it needs triton.

DeBERTa adds q_i · a_{j−i} + k_j · b_{j−i}. Two products, of all queries with all vectors a and of
all keys with all vectors b, give numbers by distance, 2·N·(2T − 1) for each head. The kernels of
attention read them along diagonals. Their gradients are those of the scores, shifted: one kernel
spreads them, and four products give the gradients of queries, keys, a and b.

A kernel that multiplied tiles of queries by the BM + BN − 1 vectors that they reach would store
none of these numbers. But it would compute two to three times the products of attention more in
each pass, gather each cell from registers of other threads, and for the gradients scatter it.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .triton_kernels import _sequence

#: Queries and keys of a tile.
TILE = 64
#: Rows begin at addresses that library products can read fast.
ALIGNED = 16


def row_of_table(longest: int) -> int:
    """From token to token in numbers by distance, of which there are 2T − 1."""
    return -(-(2 * longest - 1) // ALIGNED) * ALIGNED


class Tables(NamedTuple):
    """Numbers by distance of n heads, n×N×(2T − 1) each; None where there are no vectors."""

    by_query: Tensor | None
    by_key: Tensor | None

    def at_zero(self) -> list[Tensor | None]:
        """Views that begin at distance 0, as the kernels read them."""
        return [x if x is None else x[..., x.size(-1) // 2 :] for x in self]

    def become_gradients(
        self, ds: Tensor, starts: Tensor | None, ends: Tensor | None, longest: int, batch: int
    ) -> None:
        """Replace the numbers by their gradients, from those of the scores, n×B×S×S."""
        tables = [x for x in self if x is not None]
        for each in tables:
            each.zero_()
        if tables:
            tiles = triton.cdiv(longest, TILE)
            rows = tables[0].size(1)
            sizes = ds.size(-1), longest, batch, rows, row_of_table(longest)
            grid = tiles, tiles, len(ds) * batch
            spread[grid](ds, starts, ends, *self.at_zero(), *sizes, TILE=TILE)


def multiplied(x: Tensor, vectors: Tensor | None, heads: slice) -> Tensor | None:
    """Products of tokens, N×H×D, with vectors by distance, H×W×D: n×N×W of n heads, or None."""
    if vectors is None:
        return None
    distances = vectors.size(1)
    count = heads.stop - heads.start
    out = x.new_empty(count, len(x), row_of_table(distances // 2 + 1))[..., :distances]
    return torch.bmm(x[:, heads].transpose(0, 1), vectors[heads].mT, out=out)


def add_gradients(
    by_distance: Tensor | None,
    x: Tensor,
    vectors: Tensor | None,
    d_x: Tensor,
    d_vectors: Tensor,
    heads: slice,
) -> None:
    """Add to the gradient of x, N×H×D, and write that of the vectors, H×W×D, in n heads.

    `by_distance` is the gradient of what `multiplied` returned.
    """
    if by_distance is not None and vectors is not None:
        d_x[:, heads].transpose(0, 1).baddbmm_(by_distance, vectors[heads])
        torch.bmm(by_distance.mT, x[:, heads].transpose(0, 1), out=d_vectors[heads])


@triton.jit
def spread(
    ds, starts, ends, by_query, by_key, ds_row, longest, batch, rows_of_all, table_row,
    TILE: tl.constexpr,
):  # fmt: skip
    """The gradients of a tile of scores, which lie keys before queries, by distance."""
    b = tl.program_id(2) % batch
    start, length = _sequence(starts, ends, b, longest)
    i = tl.program_id(1) * TILE + tl.arange(0, TILE)[None, :]
    j = tl.program_id(0) * TILE + tl.arange(0, TILE)[:, None]
    inside = (i < length) & (j < length)
    ds += tl.program_id(2).to(tl.int64) * ds_row * ds_row
    found = tl.load(ds + j * ds_row + i, mask=inside, other=0.0)
    first = ((tl.program_id(2) // batch) * rows_of_all + start) * table_row
    if by_query is not None:
        tl.store(by_query + first + i * (table_row - 1) + j, found, mask=inside)
    if by_key is not None:
        tl.store(by_key + first + j * (table_row + 1) - i, found, mask=inside)
