"""Distances, values by distance as matrices (`toeplitz`) and back, and T5's buckets."""

from typing import Any

import torch
from torch import Tensor

from ..base.errors import ConfigurationError


def distances(
    queries: int, keys: int, start: int = 0, device: torch.device | None = None
) -> Tensor:
    """All distances j − i in ascending order: T+S−1 values, from −(start+T−1) to S−1−start.

    The T queries are at positions start, ..., start+T−1, the S keys at 0, ..., S−1.
    """
    return torch.arange(-(start + queries - 1), keys - start, device=device)


def toeplitz(by_distance: Tensor, keys: int) -> Tensor:
    """Spread one value per distance over the cells: H×(T+S−1) -> H×T×S.

    Cell (i, j) reads column j − i + T − 1; no table of T×S indices is made. Where each query has
    values of its own, `relative.relative_shift` does the same.
    """
    return _Toeplitz.apply(by_distance, keys)


class _Toeplitz(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, by_distance: Tensor, keys: int) -> Tensor:
        # Row i is the window of width S that starts at column T − 1 − i. Strides as of `unfold`,
        # whose width torch.export cannot leave open.
        by_distance = by_distance.contiguous()
        heads, columns = by_distance.shape
        windows = (heads, columns - keys + 1, keys)
        # Kernels need rows in consecutive memory; flip keeps the order of equal strides otherwise.
        return by_distance.as_strided(windows, (columns, 1, 1)).flip(-2).contiguous()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return diagonal_sums(gradient), None


def diagonal_sums(cells: Tensor) -> Tensor:
    """The sums of the cells of equal distance, in the order of `distances`: H×T×S -> H×(T+S−1)."""
    # T columns of zeros are appended and the rows joined. In rows that are one column shorter, row
    # i begins at i·(S+T−1), so it is shifted by i: each column holds one distance.
    queries, keys = cells.shape[-2:]
    joined = torch.nn.functional.pad(cells.flip(-2), (0, queries)).flatten(-2)
    shifted = joined[..., :-queries].unflatten(-1, (queries, queries + keys - 1))
    return shifted.sum(-2)


def relative_buckets(
    distance: Tensor, num_buckets: int, max_distance: int, bidirectional: bool = True
) -> Tensor:
    """T5's bucket of each distance j − i (Raffel et al. 2019; TUPE, section 3.3).

    Half of the buckets hold one distance each, the others logarithmic ranges up to max_distance,
    beyond which all share the last. Bidirectional: keys to the right (j > i) use the upper half of
    num_buckets. One-sided: keys to the right share bucket 0 with the query itself.

    Raises:
        ConfigurationError: the formula is not defined for these numbers.
    """
    sided = num_buckets // 2 if bidirectional else num_buckets
    if bidirectional and num_buckets % 2:
        raise ConfigurationError(f"--num-buckets must be even, but is {num_buckets}.")
    if sided < 2:
        least = 4 if bidirectional else 2
        raise ConfigurationError(f"--num-buckets must be at least {least}, but is {num_buckets}.")
    if max_distance <= sided // 2:
        raise ConfigurationError(
            f"--max-distance must be larger than {sided // 2} (the distances that have buckets of "
            f"their own with --num-buckets {num_buckets}), but is {max_distance}."
        )
    starts = torch.tensor(bucket_starts(sided, max_distance))
    reach = distance.abs() if bidirectional else (-distance).clamp(min=0)
    bucket = torch.bucketize(reach, starts, right=True) - 1
    return bucket + sided * (distance > 0) if bidirectional else bucket


def bucket_starts(sided: int, max_distance: int) -> tuple[int, ...]:
    """The smallest |j − i| of each of the buckets of one side.

    With e = sided/2 exact buckets, bucket e+k starts at the smallest n with
    log(n/e) / log(max_distance/e) · (sided−e) ≥ k. That is n^(sided−e) ≥ e^(sided−e−k) ·
    max_distance^k, which integers decide exactly; floating-point logarithms can be off by one
    bucket.
    """
    exact = sided // 2
    logarithmic = sided - exact
    starts = list(range(exact))
    n = exact
    for k in range(logarithmic):
        while n**logarithmic < exact ** (logarithmic - k) * max_distance**k:
            n += 1
        starts.append(n)
    return tuple(starts)
