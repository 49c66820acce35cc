"""Operations of the kernels on one tile: R queries by S keys of one sequence and head."""

import triton
import triton.language as tl

from .. import random_bits

STEP = tl.constexpr(random_bits.STEP)
MULTIPLIER_1, MULTIPLIER_2 = map(tl.constexpr, random_bits.MULTIPLIERS)
SHIFT_1, SHIFT_2, SHIFT_3 = map(tl.constexpr, random_bits.SHIFTS)
ENTRIES_PER_WORD = tl.constexpr(random_bits.ENTRIES_PER_WORD)
ENTRY_BITS = tl.constexpr(64 // random_bits.ENTRIES_PER_WORD)

#: Logarithm of the sum of exponentials of a row without keys: all weights become 0.
NEVER = tl.constexpr(1e30)


@triton.jit
def matrix_of_program(B, T, lengths):
    """Sequence, head, and tokens of the sequence.

    Programs of one head are consecutive, so that they read its bias from cache.
    """
    b, h = tl.program_id(0) % B, tl.program_id(0) // B
    length = T
    if lengths is not None:
        length = tl.load(lengths + b)
    return b.to(tl.int64), h.to(tl.int64), length


@triton.jit
def vectors(pointer, rows, stride, length, D: tl.constexpr, BLOCK_D: tl.constexpr):
    """Load vectors of these rows, R×BLOCK_D; zeros from row `length` and dimension D on."""
    dimensions = tl.arange(0, BLOCK_D)
    inside = (rows < length)[:, None] & (dimensions < D)[None, :]
    return tl.load(pointer + rows[:, None] * stride + dimensions[None, :], inside, 0.0)


@triton.jit
def store_vectors(pointer, value, rows, stride, T, D: tl.constexpr, BLOCK_D: tl.constexpr):
    """Store vectors of these rows, R×BLOCK_D, in the dtype of the pointer."""
    dimensions = tl.arange(0, BLOCK_D)
    inside = (rows < T)[:, None] & (dimensions < D)[None, :]
    address = pointer + rows[:, None] * stride + dimensions[None, :]
    tl.store(address, value.to(pointer.dtype.element_ty), inside)


@triton.jit
def scores(
    q, k, rows, columns, bias, bias_row, bias_column, padding, length, PRECISION: tl.constexpr
):
    """Scores q kᵀ + bias in fp32, −∞ at padding, R×S.

    Args:
        q: R×BLOCK_D, scaled.
        k: S×BLOCK_D.
        rows: R positions of queries.
        columns: S positions of keys.
        bias: address of the cell (0, 0) of this head, or None; always fp32.
        bias_row: its stride over queries, −1 where it holds a value per distance.
        bias_column: its stride over keys.
        padding: address of this sequence's mask, not 0 at padding, or None.
        length: positions from here on are padding.
        PRECISION: of products of fp32.
    """
    is_token = columns < length
    found = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    if bias is not None:
        cells = bias + rows[:, None] * bias_row + columns[None, :] * bias_column
        found += tl.load(cells, (rows < length)[:, None] & is_token[None, :], 0.0)
    if padding is not None:
        is_token = is_token & (tl.load(padding + columns, is_token, 1) == 0)
    return tl.where(is_token[None, :], found, float("-inf"))


@triton.jit
def kept(matrix, rows, first, T, key, threshold, S: tl.constexpr):
    """True where dropout keeps a weight, R×S: a tile of `random_bits.keep_mask`.

    Args:
        matrix: the sequence and head, b·H + h, of the B·H·T rows of the mask.
        rows: R positions of queries.
        first: position of the first key, a multiple of ENTRIES_PER_WORD.
        T: tokens of the longest sequence.
        key: of the mask.
        threshold: the smallest entry that is kept.
        S: keys of the tile.
    """
    row = (matrix.to(tl.int64) * T + rows) * ((T + ENTRIES_PER_WORD - 1) // ENTRIES_PER_WORD)
    word = (
        row[:, None] + (tl.arange(0, S // ENTRIES_PER_WORD) + first // ENTRIES_PER_WORD)[None, :]
    )
    bits = word.to(tl.uint64) * STEP + key.to(tl.uint64)
    bits = (bits ^ (bits >> SHIFT_1)) * MULTIPLIER_1
    bits = (bits ^ (bits >> SHIFT_2)) * MULTIPLIER_2
    bits = bits ^ (bits >> SHIFT_3)
    # Four entries, the lowest bits first: R×(S/4) -> R×(S/4)×2×2 -> R×S
    even = tl.join(bits.to(tl.int16), (bits >> (2 * ENTRY_BITS)).to(tl.int16))
    odd = tl.join((bits >> ENTRY_BITS).to(tl.int16), (bits >> (3 * ENTRY_BITS)).to(tl.int16))
    entries = tl.join(even, odd).reshape(rows.shape[0], S)
    return entries >= threshold


@triton.jit
def weights_and_gradients(
    found, v, of_out, lse, delta, matrix, rows, first, T, key, threshold, scale,
    DROPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Weights after dropout, and the gradient of the scores; R×S each, fp32.

    Args:
        found: `scores`.
        v: values, S×BLOCK_D.
        of_out: gradient of the output, R×BLOCK_D.
        lse: log Σ_j exp(score_ij), R.
        delta: Σ_d out_id · of_out_id, R.
        matrix: the sequence and head, b·H + h.
        rows: R positions of queries.
        first: position of the first key.
        T: tokens of the longest sequence.
        key: of the mask.
        threshold: of the mask.
        scale: of weights that are kept.
        DROPS: whether there is dropout.
        PRECISION: of products of fp32.
    """
    weights = tl.exp(found - lse[:, None])
    of_weights = tl.dot(of_out, tl.trans(v), input_precision=PRECISION)
    dropped = weights
    if DROPS:
        scales = tl.where(kept(matrix, rows, first, T, key, threshold, v.shape[0]), scale, 0.0)
        dropped = weights * scales
        of_weights = of_weights * scales
    return dropped, weights * (of_weights - delta[:, None])
