"""Triton kernels of attention under a bias that the sequences of a batch share.

Tokens are packed: sequence b is the rows starts[b], ..., ends[b] − 1 of q, k and v, N×H·D. Without
`starts`, each sequence has T rows, where T is `longest`. Its query i and its key j read the cell
(i, j) of the bias, H×T×T. All scores are in fp32.

`by_query` and `by_key` hold what a query or a key adds at each distance: rows of `table_row`
numbers for the N tokens of each head. They begin at distance 0, so the cell (i, j) reads number
j − i of query i and of key j.

A cell (i, j) is dropped where the 32-bit product of a random odd number of row i and a random
number of row j is below a threshold. The product is uniform, cells in one row are independent,
and so are two cells in one column. Every kernel computes the same mask, at one multiplication
per cell.

Loops over a sequence are written once and run twice (`edge`): over the whole tiles without masks,
and over the tile that ends with the sequence.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _vectors(x, rows, stride, inside, WIDTH: tl.constexpr, D: tl.constexpr, EDGE: tl.constexpr):
    """The vectors of these rows, R×D: zeros beyond the width, and outside of the sequence."""
    d = tl.arange(0, D)
    at = x + rows[:, None] * stride + d[None, :]
    if EDGE or WIDTH < D:
        found = tl.load(at, mask=inside[:, None] & (d < WIDTH)[None, :], other=0.0)
    else:
        found = tl.load(at)
    return found


@triton.jit
def _numbers(x, rows, inside, EDGE: tl.constexpr):
    """A number for each of these rows; zeros outside of the sequence."""
    found = tl.load(x + rows, mask=inside, other=0) if EDGE else tl.load(x + rows)
    return found


@triton.jit
def _store(x, rows, stride, values, inside, WIDTH: tl.constexpr, D: tl.constexpr):
    d = tl.arange(0, D)
    at = x + rows[:, None] * stride + d[None, :]
    tl.store(at, values.to(x.dtype.element_ty), mask=inside[:, None] & (d < WIDTH)[None, :])


@triton.jit
def _cells(x, stride, i, j, inside, EDGE: tl.constexpr):
    """The cells of rows i and columns j, in fp32; zeros outside of the sequence."""
    at = x + i * stride + j
    found = tl.load(at, mask=inside, other=0.0) if EDGE else tl.load(at)
    return found.to(tl.float32)


@triton.jit
def _length(starts, ends, b, longest):
    """The length of a sequence."""
    if starts is None:
        return longest
    return (tl.load(ends + b) - tl.load(starts + b)).to(tl.int32)


@triton.jit
def _sequence(starts, ends, b, longest):
    """The first row of a sequence, and its length."""
    start = b.to(tl.int64) * longest if starts is None else tl.load(starts + b).to(tl.int64)
    return start, _length(starts, ends, b, longest)


@triton.jit
def _add_by_distance(
    s, by_query, by_key, table, table_row, i, j, inside, EDGE: tl.constexpr
):  # fmt: skip
    """Scores of rows i and columns j of a sequence whose numbers begin at `table`."""
    if by_query is not None:
        s += _cells(by_query + table, table_row - 1, i, j, inside, EDGE)
    if by_key is not None:
        s += _cells(by_key + table, table_row + 1, j, -i, inside, EDGE)
    return s


@triton.jit
def forward(
    q, k, v, bias, hidden, random, by_query, by_key, starts, ends, out, lse,
    q_row, k_row, v_row, bias_head, bias_row, table_row, longest, batch, heads, rows_of_all, head0,
    scale, threshold, rescale,
    WIDTH: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """BM queries of one sequence and head: their output, and their logsumexp to base 2."""
    # The sequences of one head are neighbours: its bias stays in the cache.
    b = tl.program_id(1) % batch
    h = head0 + tl.program_id(1) // batch
    start, length = _sequence(starts, ends, b, longest)
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    if tl.program_id(0) * BM >= length:
        return
    seen = i < length
    q += start * q_row + h * WIDTH
    k += start * k_row + h * WIDTH
    v += start * v_row + h * WIDTH
    if bias is not None:
        bias += h.to(tl.int64) * bias_head
    of_head = h * rows_of_all + start
    table = (of_head - head0 * rows_of_all) * table_row
    Q = _vectors(q, i, q_row, seen, WIDTH, D, True)
    if random is not None:
        r = _numbers(random + of_head, i, seen, True) | 1
    # Finite, so that a tile may hold scores of minus infinity only.
    m = tl.full([BM], -1e30, tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    whole = length // BN * BN
    # Rows beyond the sequence read a row of it, and are not stored.
    clamped = tl.minimum(i, length - 1)
    for edge in tl.static_range(2):
        for first in tl.range(edge * whole, length if edge else whole, BN):
            j = first + tl.arange(0, BN)
            inside = j < length
            K = _vectors(k, j, k_row, inside, WIDTH, D, edge)
            s = tl.dot(Q, tl.trans(K), input_precision="ieee") * scale
            if bias is not None:
                s += _cells(bias, bias_row, clamped[:, None], j[None, :], inside[None, :], edge)
            s = _add_by_distance(
                s, by_query, by_key, table, table_row,
                clamped[:, None], j[None, :], inside[None, :], edge,
            )  # fmt: skip
            if hidden is not None:
                s += _numbers(hidden + start, j, inside, edge)[None, :]
            if edge:
                s = tl.where(inside[None, :], s, float("-inf"))
            larger = tl.maximum(m, tl.max(s, 1))
            p = tl.exp2(s * LOG2E - (larger * LOG2E)[:, None])
            shrink = tl.exp2((m - larger) * LOG2E)
            total = total * shrink + tl.sum(p, 1)
            m = larger
            if random is not None:
                c = _numbers(random + (heads * rows_of_all + of_head), j, inside, edge)
                p = tl.where(_kept(r[:, None], c[None, :], threshold), p, 0.0)
            V = _vectors(v, j, v_row, inside, WIDTH, D, edge)
            acc = tl.dot(p.to(V.dtype), V, acc * shrink[:, None], input_precision="ieee")
    out += start * heads * WIDTH + h * WIDTH
    _store(out, i, heads * WIDTH, acc * (rescale / total)[:, None], seen, WIDTH, D)
    tl.store(lse + of_head + i, m * LOG2E + tl.log2(total), mask=seen)


@triton.jit
def _kept(r, c, threshold):
    """Which cells dropout keeps."""
    return r.to(tl.uint32, bitcast=True) * c.to(tl.uint32, bitcast=True) >= threshold


@triton.jit
def deltas(
    out, d_out, delta, heads, rows_of_all, kept_share,
    WIDTH: tl.constexpr, D: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """The sum over keys of weight times gradient, of BM rows and one head."""
    h = tl.program_id(1)
    i = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    inside = i < rows_of_all
    of_out = _vectors(out + h * WIDTH, i, heads * WIDTH, inside, WIDTH, D, True).to(tl.float32)
    of_gradient = _vectors(d_out + h * WIDTH, i, heads * WIDTH, inside, WIDTH, D, True)
    found = tl.sum(of_out * of_gradient.to(tl.float32), 1) * kept_share
    tl.store(delta + h * rows_of_all + i, found, mask=inside)


@triton.jit
def keys_values(
    q, k, v, bias, hidden, random, by_query, by_key, starts, ends, d_out, lse, delta, dk, dv, ds,
    q_row, k_row, v_row, bias_head, bias_row, table_row, ds_row, longest, batch, heads,
    rows_of_all, head0,
    scale, threshold, log_rescale,
    WIDTH: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """BN keys of one sequence and head: gradients of keys and values, and of the scores.

    The bias is transposed. Gradients of scores are stored, keys before queries, in ds: B matrices
    for each head from head0 on, ds_row rows and columns, which are multiples of the tiles. Weights
    have the factor of dropout, by which `delta` is divided.
    """
    b = tl.program_id(1) % batch
    h = head0 + tl.program_id(1) // batch
    start, length = _sequence(starts, ends, b, longest)
    j = tl.program_id(0) * BN + tl.arange(0, BN)
    if tl.program_id(0) * BN >= length:
        return
    seen = j < length
    q += start * q_row + h * WIDTH
    k += start * k_row + h * WIDTH
    v += start * v_row + h * WIDTH
    d_out += start * heads * WIDTH + h * WIDTH
    if bias is not None:
        bias += h.to(tl.int64) * bias_head
    ds += tl.program_id(1).to(tl.int64) * ds_row * ds_row
    of_head = h * rows_of_all + start
    table = (of_head - head0 * rows_of_all) * table_row
    K = _vectors(k, j, k_row, seen, WIDTH, D, True)
    V = _vectors(v, j, v_row, seen, WIDTH, D, True)
    if random is not None:
        c = _numbers(random + (heads * rows_of_all + of_head), j, seen, True)
    if hidden is not None:
        added = _numbers(hidden + start, j, seen, True)
    DK = tl.zeros([BN, D], tl.float32)
    DV = tl.zeros([BN, D], tl.float32)
    whole = length // BM * BM
    clamped = tl.minimum(j, length - 1)
    for edge in tl.static_range(2):
        for first in tl.range(edge * whole, length if edge else whole, BM):
            i = first + tl.arange(0, BM)
            inside = i < length
            Q = _vectors(q, i, q_row, inside, WIDTH, D, edge)
            G = _vectors(d_out, i, heads * WIDTH, inside, WIDTH, D, edge)
            s = tl.dot(K, tl.trans(Q), input_precision="ieee") * scale
            if bias is not None:
                s += _cells(bias, bias_row, clamped[:, None], i[None, :], inside[None, :], edge)
            s = _add_by_distance(
                s, by_query, by_key, table, table_row,
                i[None, :], clamped[:, None], inside[None, :], edge,
            )  # fmt: skip
            if hidden is not None:
                s += added[:, None]
            shift = _numbers(lse + of_head, i, inside, edge) - log_rescale
            p = tl.exp2(s * LOG2E - shift[None, :])
            dp = tl.dot(V, tl.trans(G), input_precision="ieee")
            kept = p
            if random is not None:
                r = _numbers(random + of_head, i, inside, edge) | 1
                is_kept = _kept(r[None, :], c[:, None], threshold)
                dp = tl.where(is_kept, dp, 0.0)
                kept = tl.where(is_kept, p, 0.0)
            DV = tl.dot(kept.to(G.dtype), G, DV, input_precision="ieee")
            D_S = p * (dp - _numbers(delta + of_head, i, inside, edge)[None, :])
            D_S = D_S.to(Q.dtype)
            # A tile may end after the sequence: ds has room for it.
            tl.store(ds + j[:, None] * ds_row + i[None, :], D_S)
            DK = tl.dot(D_S, Q, DK, input_precision="ieee")
    dk += start * heads * WIDTH + h * WIDTH
    dv += start * heads * WIDTH + h * WIDTH
    _store(dk, j, heads * WIDTH, DK * scale, seen, WIDTH, D)
    _store(dv, j, heads * WIDTH, DV, seen, WIDTH, D)


@triton.jit
def queries(
    k, ds, starts, ends, dq, k_row, ds_row, longest, batch, heads, head0, scale,
    WIDTH: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """The gradient of BM queries of one sequence and head, from the stored one of the scores."""
    b = tl.program_id(1) % batch
    h = head0 + tl.program_id(1) // batch
    start, length = _sequence(starts, ends, b, longest)
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    if tl.program_id(0) * BM >= length:
        return
    k += start * k_row + h * WIDTH
    ds += tl.program_id(1).to(tl.int64) * ds_row * ds_row
    acc = tl.zeros([BM, D], tl.float32)
    whole = length // BN * BN
    for edge in tl.static_range(2):
        for first in tl.range(edge * whole, length if edge else whole, BN):
            j = first + tl.arange(0, BN)
            inside = j < length
            K = _vectors(k, j, k_row, inside, WIDTH, D, edge)
            at = ds + j[:, None] * ds_row + i[None, :]
            D_S = tl.load(at, mask=inside[:, None], other=0.0) if edge else tl.load(at)
            acc = tl.dot(tl.trans(D_S), K, acc, input_precision="ieee")
    dq += start * heads * WIDTH + h * WIDTH
    _store(dq, i, heads * WIDTH, acc * scale, i < length, WIDTH, D)


@triton.jit
def bias_sum(
    ds, starts, ends, d_bias, ds_row, longest, batch, head0, BM: tl.constexpr, BN: tl.constexpr
):
    """The gradient of BM×BN cells of the bias of one head: the sum over the sequences."""
    h = tl.program_id(2)
    i = tl.program_id(1) * BM + tl.arange(0, BM)
    j = tl.program_id(0) * BN + tl.arange(0, BN)
    at = ds + h.to(tl.int64) * batch * ds_row * ds_row + j[:, None] * ds_row + i[None, :]
    last_i = tl.program_id(1) * BM + BM - 1
    last_j = tl.program_id(0) * BN + BN - 1
    total = tl.zeros([BN, BM], tl.float32)
    for b in range(batch):
        length = _length(starts, ends, b, longest)
        if tl.maximum(last_i, last_j) < length:
            found = tl.load(at)
        else:
            inside = (j < length)[:, None] & (i < length)[None, :]
            found = tl.load(at, mask=inside, other=0.0)
        total += found.to(tl.float32)
        at += ds_row * ds_row
    rows = (head0 + h).to(tl.int64) * longest + i
    inside = (i < longest)[:, None] & (j < longest)[None, :]
    at = d_bias + rows[:, None] * longest + j[None, :]
    tl.store(at, tl.trans(total).to(d_bias.dtype.element_ty), mask=inside)
