"""Sizes of tiles and launches of the kernels in triton_kernels.py, which needs triton."""

import functools
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from . import triton_kernels as kernels
from .triton_distances import Tables, add_gradients, multiplied, row_of_table

#: Gradients of scores that are stored at a time, with the transposed bias, in bytes; those of one
#: head always are.
STORED = 1 << 30
#: Rows and columns of a matrix of stored gradients are a multiple of this: of all tiles.
MULTIPLE = 128
#: Rows of a tile of `deltas`.
ROWS = 64


class Tiles(NamedTuple):
    """Queries and keys of a tile, and the threads that compute it.

    Attributes:
        BM: queries.
        BN: keys.
        num_warps: groups of 32 threads.
        num_stages: tiles that are loaded at the same time.
    """

    BM: int
    BN: int
    num_warps: int = 4
    num_stages: int = 1


#: In half precision: by kernel, whether the GPU is one of `LARGE`, and whether vectors have more
#: than 64 dimensions. scripts/compile_kernels.py shows what each is compiled to.
HALF = {
    ("forward", True, False): Tiles(128, 64, 8, 3),
    ("forward", True, True): Tiles(128, 64, 8, 2),
    ("forward", False, False): Tiles(64, 64, 4, 2),
    ("forward", False, True): Tiles(128, 32, 8, 2),
    ("keys_values", True, False): Tiles(64, 128, 8, 2),
    ("keys_values", True, True): Tiles(32, 128, 8, 2),
    ("keys_values", False, False): Tiles(32, 128, 8, 2),
    ("keys_values", False, True): Tiles(64, 64, 8, 2),
    ("queries", True, False): Tiles(128, 64, 4, 3),
    ("queries", True, True): Tiles(64, 64, 4, 3),
    ("queries", False, False): Tiles(64, 64, 4, 2),
    ("queries", False, True): Tiles(64, 64, 4, 2),
}
#: Hopper and the Blackwell of data centres; others have less shared memory.
LARGE = (9, 10)
SINGLE = Tiles(32, 32)
SUM = Tiles(64, 64)
INTERPRETED = Tiles(64, 32)


@functools.cache
def tiles(kernel: str, device: torch.device, dtype: torch.dtype, wide: bool) -> Tiles:
    """The tiles of a kernel; a CPU stands for the interpreter."""
    if device.type == "cpu":
        return INTERPRETED
    if kernel == "bias_sum":
        return SUM
    if dtype == torch.float32:
        return SINGLE
    return HALF[kernel, torch.cuda.get_device_capability(device)[0] in LARGE, wide]


class Launch(NamedTuple):
    """The arguments of `triton_attention.attention`; its methods launch one kernel each."""

    q: Tensor
    k: Tensor
    v: Tensor
    bias: Tensor | None
    hidden: Tensor | None
    random: Tensor | None
    for_queries: Tensor | None
    for_keys: Tensor | None
    starts: Tensor | None
    ends: Tensor | None
    longest: int
    scale: float
    dropout: float

    def forward(self, out: Tensor, lse: Tensor, heads: slice) -> None:
        """The output of these heads, and the logsumexp of their scores to base 2."""
        tile = self.tiles("forward")
        kernels.forward[self.grid(tile.BM, heads.stop - heads.start)](
            *self[:6],
            *self.tables(heads).at_zero(),
            self.starts,
            self.ends,
            out,
            lse,
            *self.strides,
            *self.sizes,
            heads.start,
            self.scale,
            self.threshold,
            1 / (1 - self.dropout),
            **self.widths,
            **tile._asdict(),
        )

    def deltas(self, out: Tensor, d_out: Tensor, delta: Tensor) -> None:
        """For each row, the sum over keys of weight times gradient."""
        rows, heads = self.q.shape[:2]
        kernels.deltas[-(-rows // ROWS), heads](
            out, d_out, delta, heads, rows, 1 - self.dropout, **self.widths, BM=ROWS
        )

    def keys_values(
        self,
        tables: Tables,
        from_output: tuple[Tensor, Tensor, Tensor],
        dk: Tensor,
        dv: Tensor,
        ds: Tensor,
        h: int,
    ) -> None:
        """The gradients of keys, values and scores, from head h on; the bias is transposed.

        `from_output` are d_out, lse and delta.
        """
        tile = self.tiles("keys_values")
        kernels.keys_values[self.grid(tile.BN, len(ds))](
            *self[:6],
            *tables.at_zero(),
            self.starts,
            self.ends,
            *from_output,
            dk,
            dv,
            ds,
            *self.strides,
            ds.size(-1),
            *self.sizes,
            h,
            self.scale,
            self.threshold,
            -math.log2(1 - self.dropout),
            **self.widths,
            **tile._asdict(),
        )

    def queries(self, ds: Tensor, dq: Tensor, h: int) -> None:
        """The gradient of the queries."""
        tile = self.tiles("queries")
        kernels.queries[self.grid(tile.BM, len(ds))](
            self.k,
            ds,
            self.starts,
            self.ends,
            dq,
            self.k.stride(0),
            ds.size(-1),
            *self.sizes[:3],
            h,
            self.scale,
            **self.widths,
            **tile._asdict(),
        )

    def bias_sum(self, ds: Tensor, d_bias: Tensor, h: int) -> None:
        """The gradient of the bias."""
        tile = self.tiles("bias_sum")
        grid = -(-self.longest // tile.BN), -(-self.longest // tile.BM), len(ds)
        sizes = ds.size(-1), *self.sizes[:2], h
        kernels.bias_sum[grid](ds, self.starts, self.ends, d_bias, *sizes, **tile._asdict())

    def distances(
        self,
        tables: Tables,
        ds: Tensor,
        d_tokens: tuple[Tensor, Tensor],
        d_vectors: tuple[Tensor, Tensor],
        heads: slice,
    ) -> None:
        """The gradients of vectors by distance, and what is added to those of queries and keys."""
        tables.become_gradients(ds, self.starts, self.ends, self.longest, self.batch)
        vectors = self.for_queries, self.for_keys
        for each in zip(tables, self[:2], vectors, d_tokens, d_vectors, strict=True):
            add_gradients(*each, heads)

    def chunks(self) -> Iterator[tuple[slice, Tensor]]:
        """Heads, and room for the gradients of their scores."""
        side = -(-self.longest // MULTIPLE) * MULTIPLE
        every = list(self.parts(self.batch * side * side))
        ds = self.q.new_empty(every[0].stop, self.batch, side, side)
        for heads in every:
            yield heads, ds[: heads.stop - heads.start]

    def parts(self, numbers: int = 0) -> Iterator[slice]:
        """Heads for each of which so many numbers can be stored, beside those by distance."""
        tables = sum(x is not None for x in (self.for_queries, self.for_keys))
        numbers += tables * len(self.q) * row_of_table(self.longest)
        of_bias = 0 if self.bias is None else self.bias.numel() * self.bias.element_size()
        at_once = (STORED - of_bias) // max(numbers * self.q.element_size(), 1)
        heads = self.q.size(1)
        step = max(1, min(at_once, heads))
        for first in range(0, heads, step):
            yield slice(first, min(first + step, heads))

    def tables(self, heads: slice) -> Tables:
        """What these heads read by distance."""
        by_query = multiplied(self.q, self.for_queries, heads)
        return Tables(by_query, multiplied(self.k, self.for_keys, heads))

    @property
    def batch(self) -> int:
        """B."""
        return len(self.q) // self.longest if self.starts is None else len(self.starts)

    @property
    def sizes(self) -> tuple[int, ...]:
        """T, B, H and N."""
        return self.longest, self.batch, self.q.size(1), len(self.q)

    @property
    def strides(self) -> tuple[int, ...]:
        """Of rows of q, k and v; of heads and rows of the bias; of rows of numbers by distance."""
        of_bias = (0, 0) if self.bias is None else self.bias.stride()[:2]
        return (*(x.stride(0) for x in self[:3]), *of_bias, row_of_table(self.longest))

    @property
    def widths(self) -> dict[str, int]:
        """The width of vectors, and that of the tiles which hold them: a power of two."""
        width = self.q.size(2)
        return {"WIDTH": width, "D": max(16, 1 << (width - 1).bit_length())}

    @property
    def threshold(self) -> int:
        """The smallest 32-bit number that keeps a weight."""
        return int(self.dropout * 2**32)

    def tiles(self, kernel: str) -> Tiles:
        """The tiles of this kernel."""
        return tiles(kernel, self.q.device, self.q.dtype, self.q.size(2) > 64)

    def grid(self, tile: int, heads: int) -> tuple[int, int]:
        """Tiles of a sequence; sequences times heads."""
        return -(-self.longest // tile), self.batch * heads
