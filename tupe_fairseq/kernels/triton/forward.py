"""The forward kernel: online softmax over tiles of keys (Dao et al. 2022)."""

import triton
import triton.language as tl

from .tiles import NEVER, kept, matrix_of_program, scores, store_vectors, vectors


@triton.jit(do_not_specialize=["key", "threshold"])
def attend(
    q, k, v, bias, padding, lengths, out, lse,
    in_b, in_h, in_t, out_b, out_h, out_t, bias_h, bias_row, bias_column,
    B, T, key, threshold, scale,
    D: tl.constexpr, BLOCK_D: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    DROPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A program: R queries of one sequence and head."""
    b, h, length = matrix_of_program(B, T, lengths)
    matrix = b * (tl.num_programs(0) // B) + h
    start = tl.program_id(1) * R
    rows = start + tl.arange(0, R)
    begin = b * in_b + h * in_h
    if bias is not None:
        bias += h * bias_h
    if padding is not None:
        padding += b * T
    queries = vectors(q + begin, rows, in_t, length, D, BLOCK_D)
    # Finite, so that a row which has seen padding alone is 0 and not NaN.
    highest = tl.full((R,), -NEVER, tl.float32)
    total = tl.zeros((R,), tl.float32)
    sums = tl.zeros((R, BLOCK_D), tl.float32)
    for first in range(0, tl.where(start < length, length, 0), S):
        columns = first + tl.arange(0, S)
        keys = vectors(k + begin, columns, in_t, length, D, BLOCK_D)
        values = vectors(v + begin, columns, in_t, length, D, BLOCK_D)
        found = scores(
            queries, keys, rows, columns, bias, bias_row, bias_column, padding, length, PRECISION
        )
        higher = tl.maximum(highest, tl.max(found, 1))
        weights = tl.exp(found - higher[:, None])
        shrink = tl.exp(highest - higher)
        total = total * shrink + tl.sum(weights, 1)
        if DROPS:
            weights = tl.where(kept(matrix, rows, first, T, key, threshold, S), weights, 0.0)
        sums = sums * shrink[:, None]
        sums += tl.dot(weights.to(values.dtype), values, input_precision=PRECISION)
        highest = higher
    sums *= tl.where((total > 0) & (rows < length), scale / total, 0.0)[:, None]
    store_vectors(out + b * out_b + h * out_h, sums, rows, out_t, T, D, BLOCK_D)
    log_sum = tl.where(total > 0, highest + tl.log(total), NEVER)
    tl.store(lse + matrix * T + rows, log_sum, rows < T)
