"""TUPE-A and TUPE-R (Ke, He, Liu, ICLR 2021).

score_ij = [ x_i W^Q (x_j W^K)ᵀ + p_i U^Q (p_j U^K)ᵀ ] / √(2d), and in TUPE-R + b_bucket(j−i).
[CLS] untied: row 0 of the positional part is θ1, column 0 of the other rows θ2, where
θk = (LN(p_θk) U^Q)(LN(p_θk) U^K)ᵀ / √(2d), and in TUPE-R plus a row of b of its own.

positions: "weight", p: rows θ1, θ2, then position k ≥ 1 in row k + 1; tied, position k in row k;
    "layer_norm", "q_proj", "k_proj" (".weight", ".bias"): LN, U^Q, U^K;
    "relative_bias.weight": b, a row per bucket, a column per head, then what [CLS] needs.

Continued by distance (`--extend-positions toeplitz`): between positions of which one was not
trained, the mean of the cells of that distance; from toeplitz_far on, the mean of all that are as
far on that side, minus toeplitz_slope · ln(distance / toeplitz_far).
"""

import functools
import itertools
import math

import torch

from .attention import attend_with, bias_table, project_per_head
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
    trained_positions=None,
    toeplitz_far=None,
    toeplitz_slope=1.0,
    extend_positions=None,
):
    """v_ij, H×T×S, for queries at start, ..., start + queries − 1."""
    p = torch.stack([layer_norm(row, positions) for row in positions["weight"]])
    q = project_per_head(p, positions, "q_proj", num_heads)
    k = project_per_head(p, positions, "k_proj", num_heads)
    scale = 1 / math.sqrt(2 * (p.size(1) // num_heads))
    b = positions.get("relative_bias.weight")
    theta1_row, theta2_row = rows_of_cls(num_buckets, bidirectional)

    def cell(h, row_i, row_j, row_b):
        v = q[row_i][h].dot(k[row_j][h]) * scale
        return v if b is None else v + b[row_b, h]

    def trained(h, i, j):
        untied = not tie_cls
        row_b = bucket(j - i, num_buckets, max_distance, bidirectional)
        return cell(h, i + untied, j + untied, row_b)

    @functools.cache
    def mean(h, d, far):
        """Over the trained cells of distance d, or at least as far on the same side."""
        first = 0 if tie_cls else 1
        pairs = itertools.product(range(first, trained_positions), repeat=2)
        kept = [
            trained(h, i, j)
            for i, j in pairs
            if j - i == d or (abs(d) >= far and abs(j - i) >= far and (j - i) * d > 0)
        ]
        return sum(kept) / len(kept)

    def v(h, i, j):
        if i == 0 and not tie_cls:
            return cell(h, 0, 0, theta1_row)
        if j == 0 and not tie_cls:
            return cell(h, 1, 1, theta2_row)
        if extend_positions is None or max(i, j) < trained_positions:
            return trained(h, i, j)
        d = max(-toeplitz_far, min(j - i, toeplitz_far))
        beyond = math.log(max(abs(j - i) / toeplitz_far, 1))
        return mean(h, d, toeplitz_far) - toeplitz_slope * beyond

    return bias_table(v, num_heads, queries, keys, start)


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


attend = attend_with(positional_score, score_terms=2)
