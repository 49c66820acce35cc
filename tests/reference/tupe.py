"""TUPE-A and TUPE-R (Ke, He, Liu, ICLR 2021).

score_ij = [ x_i W^Q (x_j W^K)ᵀ + p_i U^Q (p_j U^K)ᵀ ] / √(2d), and in TUPE-R + b_bucket(j−i).
[CLS] untied: row 0 of the positional part is θ1, column 0 of the other rows θ2, where
θk = (LN(p_θk) U^Q)(LN(p_θk) U^K)ᵀ / √(2d), and in TUPE-R plus a row of b of its own.

positions: "weight", p: rows θ1, θ2, then position k ≥ 1 in row k + 1; tied, position k in row k;
    "layer_norm", "q_proj", "k_proj" (".weight", ".bias"): LN, U^Q, U^K;
    "relative_bias.weight": b, a row per bucket, a column per head, then what [CLS] needs.

With a window, keys farther away are hidden; an untied [CLS] sees all keys, and all queries see it.
"""

import itertools
import math

import torch

from . import attention
from .attention import project_per_head
from .buckets import bucket


def positional_score(
    positions,
    num_heads,
    queries,
    keys,
    start=0,
    *,
    tie_cls=False,
    num_buckets=32,
    max_distance=128,
    bidirectional=True,
):
    """v_ij as [head][query][key], for queries at start, ..., start + queries − 1."""
    p = torch.stack([layer_norm(row, positions) for row in positions["weight"]])
    q = project_per_head(p, positions, "q_proj", num_heads)
    k = project_per_head(p, positions, "k_proj", num_heads)
    scale = 1 / math.sqrt(2 * (p.size(1) // num_heads))
    b = positions.get("relative_bias.weight")
    theta1_row, theta2_row = rows_of_cls(num_buckets, bidirectional)

    def cell(h, row_i, row_j, row_b):
        v = q[row_i][h].dot(k[row_j][h]) * scale
        return v if b is None else v + b[row_b, h]

    def v(h, i, j):
        if tie_cls:
            return cell(h, i, j, bucket(j - i, num_buckets, max_distance, bidirectional))
        if i == 0:
            return cell(h, 0, 0, theta1_row)
        if j == 0:
            return cell(h, 1, 1, theta2_row)
        return cell(h, i + 1, j + 1, bucket(j - i, num_buckets, max_distance, bidirectional))

    rows = range(start, start + queries)
    return [[[v(h, i, j) for j in range(keys)] for i in rows] for h in range(num_heads)]


def rows_of_cls(num_buckets, bidirectional):
    """Rows of b for θ1 and θ2: the one no distance reaches, then those after the buckets."""
    if bidirectional:
        return num_buckets // 2, num_buckets
    return num_buckets, num_buckets + 1


def layer_norm(row, positions, eps=1e-5):
    centred = row - row.sum() / len(row)
    variance = centred.dot(centred) / len(row)
    normed = centred / (variance + eps).sqrt()
    return normed * positions["layer_norm.weight"] + positions["layer_norm.bias"]


def attend(x, weights, positions, num_heads, padding=None, window=None, **options):
    length = x.size(1)
    v = positional_score(positions, num_heads, length, length, **options)
    untied = not options.get("tie_cls", False)
    for i, j in itertools.product(range(length), repeat=2):
        is_cls = untied and 0 in (i, j)
        if window is not None and abs(i - j) > window and not is_cls:
            for of_head in v:
                of_head[i][j] = -math.inf
    return attention.attend(x, weights, num_heads, padding, score_terms=2, positional=v)
