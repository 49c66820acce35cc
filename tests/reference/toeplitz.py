"""A value by clipped distance: score_ij = q_i·k_j / √(2d) + b_clip(j−i) − s ln(max(|j−i|, c) / c).

[CLS] untied: the bias is 0 in row 0, and θ in column 0 of the other rows.

positions: "weight", a row per head: b of the distances −c, ..., c, or −c, ..., 0 where one-sided,
    then θ if [CLS] is untied. c is toeplitz_far, s is toeplitz_slope.
"""

import math

from . import attention


def positional_score(
    positions,
    num_heads,
    queries,
    keys,
    start=0,
    *,
    tie_cls=False,
    toeplitz_far=128,
    toeplitz_slope=1.0,
    bidirectional=True,
):
    """H×T×S, for queries at start, ..., start + queries − 1."""
    b, c = positions["weight"], toeplitz_far

    def bias(h, i, j):
        if not tie_cls and i == 0:
            return b[h, 0] * 0
        if not tie_cls and j == 0:
            return b[h, -1]
        clipped = max(-c, min(j - i, c if bidirectional else 0))
        return b[h, clipped + c] - toeplitz_slope * math.log(max(abs(j - i), c) / c)

    return attention.bias_table(bias, num_heads, queries, keys, start)


def attend(x, weights, positions, num_heads, padding=None, **options):
    length = x.size(1)
    bias = positional_score(positions, num_heads, length, length, **options)
    return attention.attend(x, weights, num_heads, padding, score_terms=2, positional=bias)
