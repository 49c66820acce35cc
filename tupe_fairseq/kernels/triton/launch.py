"""From tensors to kernels: sizes of tiles, grids, strides."""

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from . import backward, forward

#: Number of programs that keeps a GPU busy. With fewer, each sums over a share of the sequences.
ENOUGH = 512


@dataclass(frozen=True)
class Job:
    """What the kernels read in both directions.

    Attributes:
        q: scaled queries, B×H×T×D.
        k: keys, with the strides of q.
        v: values, with the strides of q.
        bias: fp32 and contiguous, H×T×T, or a value per distance, H×(2T−1); or None.
        padding: B×T, uint8, not 0 at padding; or None.
        lengths: tokens of each sequence, the longest first, int32; or None where all have T.
        sequences: number of sequences that reach each position, T, int32; None where all do.
        key: of the dropout mask.
        threshold: the smallest mask entry that is kept.
        scale: of weights that are kept.
        drops: whether there is dropout.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    bias: Tensor | None = None
    padding: Tensor | None = None
    lengths: Tensor | None = None
    sequences: Tensor | None = None
    key: int = 0
    threshold: int = 0
    scale: float = 1.0
    drops: bool = False

    @property
    def read(self) -> tuple[Tensor | None, ...]:
        """The tensors, the bias from the cell (0, 0) on."""
        bias = self.bias
        if bias is not None and bias.dim() == 2:
            bias = bias[:, self.q.size(2) - 1 :]
        return self.q, self.k, self.v, bias, self.padding, self.lengths

    def strides(self, out: Tensor) -> tuple[int, ...]:
        """Strides of the inputs and outputs, then those of heads and cells of the bias.

        A value per distance is a matrix whose rows begin one place to the left of each other.
        """
        bias: tuple[int, ...] = (0, 0, 0)
        if self.bias is not None:
            matrix = self.bias.dim() == 3
            bias = self.bias.stride() if matrix else (self.bias.stride(0), -1, 1)
        return *self.q.stride()[:3], *out.stride()[:3], *bias

    @property
    def dropout(self) -> tuple[int, int, float]:
        """Key, threshold and scale of the dropout mask."""
        return self.key, self.threshold, self.scale

    def options(self) -> dict[str, Any]:
        """Constants of the kernels."""
        precise = not torch.backends.cuda.matmul.allow_tf32
        dimensions = self.q.size(-1)
        block = max(16, triton.next_power_of_2(dimensions))
        sizes = {"D": dimensions, "BLOCK_D": block, **tiles(block, self.q.dtype)}
        return {**sizes, "DROPS": self.drops, "PRECISION": "ieee" if precise else "tf32"}


def tiles(block: int, dtype: torch.dtype) -> dict[str, int]:
    """Queries R and keys S of a tile, and how many threads and buffers a program has."""
    # Larger ones do not fit into the registers of compute capability 8.0.
    full = dtype == torch.float32
    rows = 32 if full or block > 64 else 64
    return {"R": rows, "S": 32, "num_warps": 8 if full else 4, "num_stages": 2}


def attend(job: Job) -> tuple[Tensor, Tensor]:
    """The output, B×H×T×D, and log Σ_j exp(score_ij), B×H×T."""
    batch, heads, length, _ = job.q.shape
    out, lse = like_tokens(job.q), job.q.new_empty(batch, heads, length, dtype=torch.float32)
    sizes, options = (*job.strides(out), batch, length), job.options()
    grid = (batch * heads, triton.cdiv(length, options["R"]))
    forward.attend[grid](*job.read, out, lse, *sizes, *job.dropout, **options)
    return out, lse


def attend_backward(
    job: Job, out: Tensor, lse: Tensor, of_out: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of q, k and v, and Σ_d out_id · of_out_id, B×H×T, which `of_bias` reads."""
    batch, heads, length, _ = job.q.shape
    of_q, of_k, of_v = (like_tokens(job.q) for _ in "qkv")
    sizes, options = (*job.strides(out), batch, length), job.options()
    delta = torch.empty_like(lse)
    grid = (batch * heads, triton.cdiv(length, options["R"]))
    backward.of_queries[grid](
        *job.read, out, lse, of_out, delta, of_q, *sizes, *job.dropout, **options
    )
    grid = (batch * heads, triton.cdiv(length, options["S"]))
    backward.of_keys_and_values[grid](
        *job.read, lse, of_out, delta, of_k, of_v, *sizes, *job.dropout, **options
    )
    return of_q, of_k, of_v, delta


def of_bias(job: Job, lse: Tensor, of_out: Tensor, delta: Tensor, first: int, last: int) -> Tensor:
    """The gradient of the bias of queries first, ..., last − 1, H×(last−first)×T, fp32."""
    batch, heads, length, _ = job.q.shape
    rows, options = last - first, job.options()
    grid = (triton.cdiv(length, options["S"]), triton.cdiv(rows, options["R"]))
    share = triton.cdiv(batch, triton.cdiv(ENOUGH, grid[0] * grid[1] * heads))
    shares = triton.cdiv(batch, share)
    cells = lse.new_empty(shares, heads, rows, length)
    backward.of_bias[(*grid, heads * shares)](
        *job.read, job.sequences, lse, of_out, delta, cells, *job.strides(of_out),
        batch, length, heads, *job.dropout, first, rows, share, **options,
    )  # fmt: skip
    return cells[0] if shares == 1 else cells.sum(0)


def like_tokens(x: Tensor) -> Tensor:
    """An empty tensor of the shape of x, B×H×T×D, with tokens before heads in memory, B×T×H×D."""
    batch, heads, length, dimensions = x.shape
    return x.new_empty(batch, length, heads, dimensions).transpose(1, 2)
