"""Vectors by distance in blocked attention (Shaw, Transformer-XL, DeBERTa).

Cell (i, j) needs the product of query i and the vector of distance j − i. A tile of queries is
multiplied by all vectors that it reaches, and each cell reads its product along a diagonal:

    cells                    products
           j=0 1 2                  j−i=−1 0 1 2
    i=0      a b c      <-   i=0         . a b c
    i=1      d e f           i=1         d e f .

Gradients are summed back along the diagonals. Keys are multiplied likewise.
"""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from ..kernels.diagonals import add_by_distance_, sum_by_distance
from ..kernels.products import multiply
from ..position.relative import ByDistance, RelativeVectors
from .blocks import Block, Blocks

#: Rows of a tile. With J cells in a row, it reaches J + TILE − 1 distances.
TILE = 64
#: The vectors of `RelativeVectors`.
TABLES = ("for_queries", "for_keys", "for_values")
#: Cells up to which a tile has several heads: one call for each takes longer than its products.
FEW_CELLS = 1 << 16


class Tile(NamedTuple):
    """Consecutive queries or keys of a block, of all sequences of one head or of several.

    Attributes:
        cells: M×I×J, those of its queries and keys.
        rows: index of its queries or keys in H×B×T×D.
        reached: index of the vectors whose distances it reaches in H×W×D, which gives G×N×D: those
            of each head, or with G = 1 of all.
        offset: column of the cell (0, 0) in a product with these N vectors.
    """

    cells: Tensor
    rows: tuple[slice, slice, slice]
    reached: tuple[slice, slice]
    offset: int

    def by_matrix(self, values: Tensor) -> Tensor:
        """Values of its rows: G×(M/G·R)×N -> M×R×N."""
        return values.view(len(self.cells), -1, values.size(-1))


class Table:
    """Vectors by distance, in one forward or backward pass of a layer.

    The vectors of `RelativeVectors` take part by two methods:

                forward                   backward
        a, b    add_to_cells: scores      add_from_cells: gradients of q or k, and of the vectors
        c       add_from_cells: output    add_to_cells: gradient of the weights
                                          add_from_cells: gradient of the vectors

    Args:
        vectors: H×W×D, or 1×W×D where the heads share them.
        first: the distance j − i of row 0.
        x: what they are multiplied by in `add_to_cells`: queries, H×B×T×D, or keys by key.
        out: what `add_from_cells` adds to, H×B×T×D.
        by_key: whether the keys are multiplied.
    """

    def __init__(
        self,
        vectors: Tensor,
        first: int,
        x: Tensor | None = None,
        out: Tensor | None = None,
        by_key: bool = False,
    ):
        # As the kernel for products requires.
        self.vectors = vectors.contiguous()
        self.first = first
        self.by_key = by_key
        self.x = x
        self.out = out
        self.gradient: Tensor | None = None
        self.workspace = vectors.new_empty(0)

    def add_to_cells(self, block: Block, cells: Tensor) -> None:
        """Add x_i · vector_{j−i}, or x_j by key, to cells M×R×S."""
        for tile in self._tiles(block, cells):
            rows = self._rows(tile)
            vectors = self.vectors[tile.reached]
            products = self._workspace(*rows.shape[:2], vectors.size(1))
            multiply(rows, vectors.mT, products)
            add_by_distance_(tile.cells, tile.by_matrix(products), tile.offset, self.by_key)

    def add_from_cells(self, block: Block, cells: Tensor) -> None:
        """Sum cells M×R×S by row and distance.

        The sums times vectors, Σ_j cell_ij vector_{j−i}, or Σ_i by key, are added to `out`, and
        the sums of cell_ij x_i, or x_j by key, over the cells of a distance to `gradient`.
        """
        for tile in self._tiles(block, cells):
            vectors = self.vectors[tile.reached]
            heads, columns, width = vectors.shape
            rows = tile.cells.size(0) * tile.cells.size(2 if self.by_key else 1)
            sums = self._workspace(heads, rows // heads, columns)
            by_matrix = tile.by_matrix(sums)
            sum_by_distance(tile.cells, by_matrix, tile.offset, self.by_key)
            if self.x is not None:
                if self.gradient is None:
                    self.gradient = torch.zeros_like(self.vectors)
                gradient = self.gradient[tile.reached]
                multiply(sums.mT, self._rows(tile), gradient, accumulate=True)
            if self.out is not None:
                out = self.out[tile.rows]
                each = vectors[:, None].expand(*out.shape[:2], -1, -1).reshape(-1, columns, width)
                multiply(by_matrix, each, out.view(-1, *out.shape[2:]), accumulate=True)

    def _rows(self, tile: Tile) -> Tensor:
        """The rows x of a tile, G×(M/G·R)×D."""
        assert self.x is not None
        heads = tile.reached[0]
        return self.x[tile.rows].reshape(heads.stop - heads.start, -1, self.x.size(-1))

    def _workspace(self, *size: int) -> Tensor:
        """Memory for the values of a tile by row and distance, reused by the next tile."""
        count = math.prod(size)
        if self.workspace.numel() < count:
            self.workspace = self.vectors.new_empty(count)
        return self.workspace[:count].view(size)

    def _tiles(self, block: Block, cells: Tensor) -> Iterator[Tile]:
        # `cls_in_front` needs no care: only TUPE unties [CLS], and it has no vectors by distance.
        table = ByDistance(self.vectors, self.first)
        group = block.group
        queries = range(block.first, block.first + block.rows)
        keys = range(block.first_key, block.first_key + block.num_keys)
        length = len(keys if self.by_key else queries)
        across = len(queries if self.by_key else keys)
        # With few vectors, a tile of all rows has no more columns than a smaller one.
        step = length if self.vectors.size(1) <= across else TILE
        matrices = len(cells) // (group.heads.stop - group.heads.start)
        together = max(1, FEW_CELLS // max(matrices * min(step, length) * across, 1))
        for head in range(group.heads.start, group.heads.stop, together):
            heads = slice(head, min(head + together, group.heads.stop))
            first = (head - group.heads.start) * matrices
            in_heads = cells[first : first + matrices * (heads.stop - head)]
            for begin in range(0, length, step):
                part = slice(begin, begin + step)
                if self.by_key:
                    i = queries
                    j = keys[part]
                    in_tile = in_heads[:, :, part]
                else:
                    i = queries[part]
                    j = keys
                    in_tile = in_heads[:, part]
                rows = j if self.by_key else i
                start, stop = table.reached(j[0] - i[-1], j[-1] - i[0])
                # Of cell (0, 0): distance −first-> row of the table −start-> column of the product
                yield Tile(
                    cells=in_tile,
                    rows=(heads, group.sequences, slice(rows.start, rows.stop)),
                    reached=(heads if len(self.vectors) > 1 else slice(0, 1), slice(start, stop)),
                    offset=j[0] - i[0] - self.first - start,
                )


class Tensors(NamedTuple):
    """The tensors of blocked attention that can have a gradient, besides the bias.

    Attributes:
        q: scaled queries that are multiplied by the keys, B×H×T×E.
        k: keys, B×H×T×E.
        v: values, B×H×T×D.
        queries: what `for_queries` is multiplied by in place of q, B×H×T×D; or None.
        for_queries: vectors by distance, H×W×D or 1×W×D, see `RelativeVectors`; or None.
        for_keys: likewise.
        for_values: likewise.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    queries: Tensor | None = None
    for_queries: Tensor | None = None
    for_keys: Tensor | None = None
    for_values: Tensor | None = None

    def heads_first(self) -> "Tensors":
        """The same with q, k, v and queries as H×B×T×D."""
        q, k, v = map(heads_first, self[:3])
        queries = None if self.queries is None else heads_first(self.queries)
        return Tensors(q, k, v, queries, *self[4:])

    def zeros(self, blocks: Blocks) -> "Tensors":
        """Where to sum the gradients of q, k, v and queries, H×B×T×D each."""
        q, k, v = map(blocks.empty_like, self[:3])
        return Tensors(q, k, v, None if self.queries is None else torch.zeros_like(self.queries))

    def tables(
        self,
        firsts: Mapping[str, int],
        gradients: "Tensors | None" = None,
        values: Tensor | None = None,
        out: Tensor | None = None,
    ) -> dict[str, "Table"]:
        """The vectors by distance as tables; the tensors are H×B×T×D.

        Args:
            firsts: the distance of the first row of each table.
            gradients: in the backward pass, where to sum those of queries and keys.
            values: what `for_values` is multiplied by: the gradient of the output.
            out: what `for_values` adds to: the output.
        """
        x = {"for_queries": self.q if self.queries is None else self.queries, "for_keys": self.k}
        sums: dict[str, Tensor | None] = {"for_values": out}
        if gradients is not None:
            queries = gradients.q if gradients.queries is None else gradients.queries
            sums |= {"for_queries": queries, "for_keys": gradients.k}
        if values is not None:
            x["for_values"] = values
        return {
            name: Table(
                getattr(self, name), first, x.get(name), sums.get(name), name == "for_keys"
            )
            for name, first in firsts.items()
        }


TENSORS = len(Tensors._fields)


def heads_first(x: Tensor) -> Tensor:
    """B×H×T×D -> H×B×T×D, contiguous, so that the matrices of a group are consecutive."""
    return x.transpose(0, 1).contiguous()


def relative_inputs(
    q: Tensor, k: Tensor, v: Tensor, relative: RelativeVectors | None
) -> tuple[Tensors, dict[str, int]]:
    """The inputs of attention with vectors by distance, and the first distance of each table.

    Args:
        q: scaled queries, B×H×T×E; E is the width of the vectors, if there are any.
        k: keys, B×H×T×E.
        v: values, B×H×T×D.
        relative: the vectors of the layer, or None.
    """
    if relative is None:
        return Tensors(q, k, v), {}
    names = [name for name in TABLES if getattr(relative, name) is not None]
    tables: dict[str, ByDistance] = {name: getattr(relative, name) for name in names}
    vectors = {name: table.vectors.to(q.dtype) for name, table in tables.items()}
    queries = None
    if relative.query_bias is not None or relative.key_bias is not None:
        queries = relative.biased(q).to(q.dtype)
    if relative.key_bias is not None:
        q = q + relative.key_bias
    firsts = {name: table.first for name, table in tables.items()}
    return Tensors(q, k, v, queries, **vectors), firsts
