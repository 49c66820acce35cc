"""What the kernels do with one tile: R queries by S keys of one sentence and head."""

import triton
import triton.language as tl

from .. import dropout

STEP = tl.constexpr(dropout.STEP)
MULTIPLIER_1, MULTIPLIER_2 = (
    tl.constexpr(multiplier % (1 << 64)) for _, multiplier in dropout.MIXING if multiplier
)
SHIFT_1, SHIFT_2, SHIFT_3 = (tl.constexpr(shift) for shift, _ in dropout.MIXING)
PIECES = tl.constexpr(dropout.PIECES)
PIECE_BITS = tl.constexpr(64 // dropout.PIECES)

#: Log of a sum of exponentials where there is none: their shares are 0.
NEVER = tl.constexpr(1e30)


@triton.jit
def matrix_of_program(B, T, lengths):
    """Sentence, head, and words of the sentence; programs of a head stand side by side.

    So that its bias is read from cache.
    """
    b, h = tl.program_id(0) % B, tl.program_id(0) // B
    length = T
    if lengths is not None:
        length = tl.load(lengths + b)
    return b.to(tl.int64), h.to(tl.int64), length


@triton.jit
def vectors(pointer, rows, stride, length, D: tl.constexpr, BLOCK_D: tl.constexpr):
    """Those of the rows, R×BLOCK_D, with zeros from row `length` and from dimension D on."""
    dimensions = tl.arange(0, BLOCK_D)
    inside = (rows < length)[:, None] & (dimensions < D)[None, :]
    return tl.load(pointer + rows[:, None] * stride + dimensions[None, :], inside, 0.0)


@triton.jit
def store_vectors(pointer, value, rows, stride, T, D: tl.constexpr, BLOCK_D: tl.constexpr):
    """The other way, in the dtype of the pointer."""
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
        padding: address of this sentence's mask, not 0 at padding, or None.
        length: positions from here on are padding.
        PRECISION: of products of fp32.
    """
    is_word = columns < length
    found = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    if bias is not None:
        cells = bias + rows[:, None] * bias_row + columns[None, :] * bias_column
        found += tl.load(cells, (rows < length)[:, None] & is_word[None, :], 0.0)
    if padding is not None:
        is_word = is_word & (tl.load(padding + columns, is_word, 1) == 0)
    return tl.where(is_word[None, :], found, float("-inf"))


@triton.jit
def kept(matrix, rows, first, T, key, threshold, S: tl.constexpr):
    """True where dropout keeps a weight, R×S: a tile of `modules.dropout.keep_mask`.

    Args:
        matrix: the sentence and head, b·H + h, of the B·H·T rows of the mask.
        rows: R positions of queries.
        first: position of the first key, a multiple of PIECES.
        T: words of the longest sentence.
        key: of the mask.
        threshold: the smallest piece that is kept.
        S: keys of the tile.
    """
    row = (matrix.to(tl.int64) * T + rows) * ((T + PIECES - 1) // PIECES)
    word = row[:, None] + (tl.arange(0, S // PIECES) + first // PIECES)[None, :]
    bits = word.to(tl.uint64) * STEP + key.to(tl.uint64)
    bits = (bits ^ (bits >> SHIFT_1)) * MULTIPLIER_1
    bits = (bits ^ (bits >> SHIFT_2)) * MULTIPLIER_2
    bits = bits ^ (bits >> SHIFT_3)
    # Four pieces, the lowest bits first: R×(S/4) -> R×(S/4)×2×2 -> R×S
    even = tl.join(bits.to(tl.int16), (bits >> (2 * PIECE_BITS)).to(tl.int16))
    odd = tl.join((bits >> PIECE_BITS).to(tl.int16), (bits >> (3 * PIECE_BITS)).to(tl.int16))
    pieces = tl.join(even, odd).reshape(rows.shape[0], S)
    return pieces >= threshold


@triton.jit
def weights_and_gradients(
    found, v, of_out, lse, delta, matrix, rows, first, T, key, threshold, scale,
    DROPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Weights as they meet the values, and the gradient of the scores; R×S each, fp32.

    Args:
        found: `scores`.
        v: values, S×BLOCK_D.
        of_out: gradient of the output, R×BLOCK_D.
        lse: log Σ_j exp(score_ij), R.
        delta: Σ_d out_id · of_out_id, R.
        matrix: the sentence and head, b·H + h.
        rows: R positions of queries.
        first: position of the first key.
        T: words of the longest sentence.
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
