"""Vectors by distance in blocked attention (Shaw, Transformer-XL, DeBERTa).

Queries, keys or gradients of outputs are multiplied in tiles with the vectors that they reach. The
products are added to the cells along diagonals; gradients are summed back along them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..kernels.diagonals import add_by_distance_, sum_by_distance
from ..kernels.products import multiplied, multiply
from ..position.relative import ByDistance, RelativeVectors
from .blocks import Block

#: Rows of a tile. It reaches as many distances as there are cells in a row, and this many more.
TILE = 64


class Tile(NamedTuple):
    """Consecutive queries or keys of a block, of all sequences of one head.

    Attributes:
        cells: B×I×J, those that lie in its rows.
        at: index of its rows in H×B×T×D, which gives B×R×D.
        window: index of the vectors that it reaches in H×W×D, which gives W×D.
        offset: column of the cell (0, 0) in a product with these vectors.
    """

    cells: Tensor
    at: tuple[int, slice, slice]
    window: tuple[int, slice]
    offset: int


class Table:
    """Vectors by distance that are multiplied by queries or keys.

    Args:
        vectors: H×W×D, or 1×W×D where the heads share them.
        first: the distance j − i of row 0.
        by_key: whether the keys are multiplied.
    """

    def __init__(self, vectors: Tensor, first: int, by_key: bool = False):
        # oneDNN is slow by orders of magnitude where rows are not consecutive.
        self.vectors, self.first, self.by_key = vectors.contiguous(), first, by_key
        self.gradient = torch.zeros(vectors.shape, dtype=vectors.dtype)
        self.memory = vectors.new_empty(0)

    def add(self, block: Block, cells: Tensor, x: Tensor) -> None:
        """Add x_i · vector_{j−i}, or x_j by key, to cells M×R×S, for x H×B×T×D."""
        for tile in self._tiles(block, cells):
            rows, vectors = self._rows(x, tile), self.vectors[tile.window]
            memory = self._memory_of(len(rows), len(vectors))
            (products,) = multiplied(rows[None], vectors.t()[None], memory[None])
            add_by_distance_(*self._shaped(tile, products), tile.offset, self.by_key)

    def add_transposed(
        self, block: Block, cells: Tensor, out: Tensor | None = None, x: Tensor | None = None
    ) -> None:
        """Sum cells by row and distance; add the sums times vectors to out, times x to gradient.

        Args:
            block: where the cells are.
            cells: M×R×S.
            out: Σ_j cell_ij vector_{j−i}, or Σ_i by key, is added to it, H×B×T×D.
            x: Σ of cell_ij x_i over the cells of a distance is added to the gradient.
        """
        for tile in self._tiles(block, cells):
            vectors = self.vectors[tile.window]
            rows = tile.cells.size(0) * tile.cells.size(2 if self.by_key else 1)
            sums = self._memory_of(rows, len(vectors))
            sum_by_distance(*self._shaped(tile, sums), tile.offset, self.by_key)
            if x is not None:
                gradient, factors = self.gradient[tile.window], self._rows(x, tile)
                multiply(sums.t()[None], factors[None], gradient[None], accumulate=True)
            if out is not None:
                part = out[tile.at][..., : vectors.size(-1)]
                by_matrix = sums.view(len(part), -1, len(vectors))
                multiply(by_matrix, vectors.expand(len(part), -1, -1), part, accumulate=True)

    def _rows(self, x: Tensor, tile: Tile) -> Tensor:
        """The rows of a tile, without dimensions appended to the vectors: B·R×D."""
        width = self.vectors.size(-1)
        return x[tile.at][..., :width].reshape(-1, width)

    def _memory_of(self, rows: int, columns: int) -> Tensor:
        """Memory for the cells of a tile by distance."""
        if self.memory.numel() < rows * columns:
            self.memory = self.vectors.new_empty(rows * columns)
        return self.memory[: rows * columns].view(rows, columns)

    @staticmethod
    def _shaped(tile: Tile, products: Tensor) -> tuple[Tensor, Tensor]:
        return tile.cells, products.view(len(tile.cells), -1, products.size(-1))

    def _tiles(self, block: Block, cells: Tensor) -> Iterator[Tile]:
        group, keys = block.group, block.num_keys
        length, across = (keys, block.rows) if self.by_key else (block.rows, keys)
        # With few vectors, a tile of all rows has no more columns than a smaller one.
        step = length if self.vectors.size(1) <= across else TILE
        by_head = cells.unflatten(0, (group.heads.stop - group.heads.start, -1))
        for head, of_head in zip(range(group.heads.start, group.heads.stop), by_head, strict=True):
            for begin in range(0, length, step):
                end = min(begin + step, length)
                yield self._tile(block, of_head, head, begin, end)

    def _tile(self, block: Block, cells: Tensor, head: int, begin: int, end: int) -> Tile:
        if self.by_key:
            queries = (block.first, block.first + block.rows)
            keys = (block.first_key + begin, block.first_key + end)
            cells, at = cells[:, :, begin:end], slice(*keys)
        else:
            queries = (block.first + begin, block.first + end)
            keys = (block.first_key, block.first_key + block.num_keys)
            cells, at = cells[:, begin:end], slice(*queries)
        table = ByDistance(self.vectors, self.first)
        start, stop = table.reached(keys[0] - queries[1] + 1, keys[1] - 1 - queries[0])
        window = (head if len(self.vectors) > 1 else 0, slice(start, stop))
        offset = keys[0] - queries[0] - self.first - start
        return Tile(cells, (head, block.group.sequences, at), window, offset)


@dataclass(frozen=True)
class Relative:
    """The relative vectors of one layer in one attention.

    Attributes:
        a: vectors that queries are multiplied by, or None.
        b: vectors that keys are multiplied by, or None.
        c: vectors that are added to values, or None.
        q: the queries that are multiplied by a, H×B×T×E.
        k: the keys, H×B×S×E.
    """

    a: Table | None
    b: Table | None
    c: Table | None
    q: Tensor
    k: Tensor

    @classmethod
    def of(cls, firsts: Any, q: Tensor, k: Tensor, tables: Any) -> "Relative":
        """From the tensors H×W×D of a, b and c, each of which may be None, and their `first`."""
        a, b, c = (
            None if table is None else Table(table, first, by_key=index == 1)
            for index, (table, first) in enumerate(zip(tables, firsts, strict=True))
        )
        return cls(a, b, c, q, k)

    def add_to_scores(self, block: Block, scores: Tensor) -> None:
        """Add the products with a and b."""
        if self.a is not None:
            self.a.add(block, scores, self.q)
        if self.b is not None:
            self.b.add(block, scores, self.k)

    def add_to_output(self, block: Block, weights: Tensor, out: Tensor) -> None:
        """Add the weighted sum of c to out, H×B×T×D."""
        if self.c is not None:
            self.c.add_transposed(block, weights, out)

    def add_gradients(
        self,
        block: Block,
        weights: Tensor,
        grad_scores: Tensor,
        grad_out: Tensor,
        grad_q: Tensor,
        grad_k: Tensor,
    ) -> None:
        """Add to the gradients of q, H×B×T×D, of k, H×B×S×D, and of the tables."""
        if self.a is not None:
            self.a.add_transposed(block, grad_scores, grad_q, self.q)
        if self.b is not None:
            self.b.add_transposed(block, grad_scores, grad_k, self.k)
        if self.c is not None:
            self.c.add_transposed(block, weights, x=grad_out)

    def gradients(self) -> list[Tensor | None]:
        """The gradients of a, b and c."""
        return [None if table is None else table.gradient for table in (self.a, self.b, self.c)]

    def add_to_weights(self, block: Block, grad_weights: Tensor, grad_out: Tensor) -> None:
        """Add to the gradient of the weights what c contributes."""
        if self.c is not None:
            self.c.add(block, grad_weights, grad_out)


def relative_inputs(q: Tensor, relative: RelativeVectors | None) -> tuple[Any, ...]:
    """The vectors by distance as tensors, which autograd needs as arguments.

    Args:
        q: scaled queries, B×H×T×E; E may be larger than the width of the vectors.
        relative: the vectors of the layer, or None.

    Returns:
        The queries that are multiplied by the keys; `firsts`, the first distances of a, b and c;
        the queries that are multiplied by a, where they are others; a, b and c, or None.
    """
    if relative is None:
        return q, (None, None, None), None, None, None, None
    tables = (relative.for_queries, relative.for_keys, relative.for_values)
    firsts = tuple(None if table is None else table.first for table in tables)
    vectors = (None if table is None else table.vectors for table in tables)
    other = None
    if relative.query_bias is not None or relative.key_bias is not None:
        other = relative.biased(q[..., : relative.width])
    if (bias := relative.key_bias) is not None:
        q = q + F.pad(bias, (0, q.size(-1) - bias.size(-1)))
    return q, firsts, other, *vectors
