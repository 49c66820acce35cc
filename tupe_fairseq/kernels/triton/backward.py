"""Backward kernels: one for queries, one for keys and values, one for the bias.

Each computes the scores again. No two programs write to the same place, so gradients are
deterministic. The kernel of the bias sums over sequences.
"""

import triton
import triton.language as tl

from .tiles import NEVER, matrix_of_program, scores, store_vectors, vectors, weights_and_gradients


@triton.jit(do_not_specialize=["key", "threshold"])
def of_queries(
    q, k, v, bias, padding, lengths, out, lse, of_out, delta, of_q,
    in_b, in_h, in_t, out_b, out_h, out_t, bias_h, bias_row, bias_column,
    B, T, key, threshold, scale,
    D: tl.constexpr, BLOCK_D: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    DROPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A program: the gradient of R queries, and their delta, which the other kernels read."""
    b, h, length = matrix_of_program(B, T, lengths)
    matrix = b * (tl.num_programs(0) // B) + h
    start = tl.program_id(1) * R
    rows = start + tl.arange(0, R)
    begin, begin_out, row = b * in_b + h * in_h, b * out_b + h * out_h, matrix * T + rows
    if bias is not None:
        bias += h * bias_h
    if padding is not None:
        padding += b * T
    queries = vectors(q + begin, rows, in_t, length, D, BLOCK_D)
    gradients = vectors(of_out + begin_out, rows, out_t, length, D, BLOCK_D)
    outputs = vectors(out + begin_out, rows, out_t, length, D, BLOCK_D)
    row_delta = tl.sum(outputs.to(tl.float32) * gradients.to(tl.float32), 1)
    tl.store(delta + row, row_delta, rows < T)
    row_lse = tl.load(lse + row, rows < length, NEVER)
    sums = tl.zeros((R, BLOCK_D), tl.float32)
    for first in range(0, tl.where(start < length, length, 0), S):
        columns = first + tl.arange(0, S)
        keys = vectors(k + begin, columns, in_t, length, D, BLOCK_D)
        values = vectors(v + begin, columns, in_t, length, D, BLOCK_D)
        found = scores(
            queries, keys, rows, columns, bias, bias_row, bias_column, padding, length, PRECISION
        )
        _, of_scores = weights_and_gradients(
            found, values, gradients, row_lse, row_delta,
            matrix, rows, first, T, key, threshold, scale, DROPS, PRECISION,
        )  # fmt: skip
        sums += tl.dot(of_scores.to(keys.dtype), keys, input_precision=PRECISION)
    store_vectors(of_q + begin_out, sums, rows, out_t, T, D, BLOCK_D)


@triton.jit(do_not_specialize=["key", "threshold"])
def of_keys_and_values(
    q, k, v, bias, padding, lengths, lse, of_out, delta, of_k, of_v,
    in_b, in_h, in_t, out_b, out_h, out_t, bias_h, bias_row, bias_column,
    B, T, key, threshold, scale,
    D: tl.constexpr, BLOCK_D: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    DROPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A program: the gradients of S keys and values."""
    b, h, length = matrix_of_program(B, T, lengths)
    matrix = b * (tl.num_programs(0) // B) + h
    first = tl.program_id(1) * S
    columns = first + tl.arange(0, S)
    begin, begin_out = b * in_b + h * in_h, b * out_b + h * out_h
    if bias is not None:
        bias += h * bias_h
    if padding is not None:
        padding += b * T
    keys = vectors(k + begin, columns, in_t, length, D, BLOCK_D)
    values = vectors(v + begin, columns, in_t, length, D, BLOCK_D)
    sums_k, sums_v = tl.zeros((S, BLOCK_D), tl.float32), tl.zeros((S, BLOCK_D), tl.float32)
    for start in range(0, tl.where(first < length, length, 0), R):
        rows = start + tl.arange(0, R)
        queries = vectors(q + begin, rows, in_t, length, D, BLOCK_D)
        gradients = vectors(of_out + begin_out, rows, out_t, length, D, BLOCK_D)
        row_lse = tl.load(lse + matrix * T + rows, rows < length, NEVER)
        row_delta = tl.load(delta + matrix * T + rows, rows < length, 0.0)
        found = scores(
            queries, keys, rows, columns, bias, bias_row, bias_column, padding, length, PRECISION
        )
        weights, of_scores = weights_and_gradients(
            found, values, gradients, row_lse, row_delta,
            matrix, rows, first, T, key, threshold, scale, DROPS, PRECISION,
        )  # fmt: skip
        weights, of_scores = weights.to(gradients.dtype), of_scores.to(queries.dtype)
        sums_v += tl.dot(tl.trans(weights), gradients, input_precision=PRECISION)
        sums_k += tl.dot(tl.trans(of_scores), queries, input_precision=PRECISION)
    store_vectors(of_k + begin_out, sums_k, columns, out_t, T, D, BLOCK_D)
    store_vectors(of_v + begin_out, sums_v, columns, out_t, T, D, BLOCK_D)


@triton.jit(do_not_specialize=["key", "threshold", "first_row", "share"])
def of_bias(
    q, k, v, bias, padding, lengths, sequences, lse, of_out, delta, of_cells,
    in_b, in_h, in_t, out_b, out_h, out_t, bias_h, bias_row, bias_column,
    B, T, H, key, threshold, scale, first_row, num_rows, share,
    D: tl.constexpr, BLOCK_D: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    DROPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A program: the gradient of R×S cells of a head's bias, summed over a share of the sequences.

    It goes into shares×H×num_rows×T, whose first row is that of query `first_row`.
    """
    h, part = (tl.program_id(2) % H).to(tl.int64), tl.program_id(2) // H
    start, first = tl.program_id(1) * R, tl.program_id(0) * S
    row, columns = start + tl.arange(0, R), first + tl.arange(0, S)
    rows = first_row + row
    bias += h * bias_h
    stop = tl.minimum(part * share + share, B)
    if sequences is not None:
        stop = tl.minimum(stop, tl.load(sequences + tl.maximum(first_row + start, first)))
    total = tl.zeros((R, S), tl.float32)
    for b in range(part * share, stop):
        total += of_cells_of_sequence(
            tl.cast(b, tl.int64), h, rows, columns, first,
            q, k, v, bias, padding, lengths, lse, of_out, delta,
            in_b, in_h, in_t, out_b, out_h, out_t, bias_row, bias_column,
            T, H, key, threshold, scale, D, BLOCK_D, DROPS, PRECISION,
        )  # fmt: skip
    cells = (tl.program_id(2).to(tl.int64) * num_rows + row) * T
    inside = (row < num_rows)[:, None] & (columns < T)[None, :]
    tl.store(of_cells + cells[:, None] + columns[None, :], total, inside)


@triton.jit
def of_cells_of_sequence(
    b, h, rows, columns, first,
    q, k, v, bias, padding, lengths, lse, of_out, delta,
    in_b, in_h, in_t, out_b, out_h, out_t, bias_row, bias_column,
    T, H, key, threshold, scale,
    D: tl.constexpr, BLOCK_D: tl.constexpr, DROPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradient of the scores of one sequence and head, R×S."""
    matrix, length = b * H + h, T
    if lengths is not None:
        length = tl.load(lengths + b)
    if padding is not None:
        padding += b * T
    begin, begin_out = b * in_b + h * in_h, b * out_b + h * out_h
    queries = vectors(q + begin, rows, in_t, length, D, BLOCK_D)
    gradients = vectors(of_out + begin_out, rows, out_t, length, D, BLOCK_D)
    keys = vectors(k + begin, columns, in_t, length, D, BLOCK_D)
    values = vectors(v + begin, columns, in_t, length, D, BLOCK_D)
    row_lse = tl.load(lse + matrix * T + rows, rows < length, NEVER)
    row_delta = tl.load(delta + matrix * T + rows, rows < length, 0.0)
    found = scores(
        queries, keys, rows, columns, bias, bias_row, bias_column, padding, length, PRECISION
    )
    _, of_scores = weights_and_gradients(
        found, values, gradients, row_lse, row_delta,
        matrix, rows, first, T, key, threshold, scale, DROPS, PRECISION,
    )  # fmt: skip
    return of_scores
