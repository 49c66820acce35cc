"""A value by clipped distance: score_ij = q_i·k_j / √(2d) + b_clip(j−i) − s ln(max(|j−i|, c) / c).

[CLS] untied: the bias is 0 in row 0, and θ in column 0 of the other rows.

positions: "weight", a row per head: b of the distances −c, ..., c, or −c, ..., 0 where one-sided,
    then θ if [CLS] is untied. c is toeplitz_far, s is toeplitz_slope.
"""

import math

from .attention import biased


def bias(
    h,
    i,
    j,
    positions,
    num_heads,
    *,
    tie_cls=False,
    toeplitz_far=128,
    toeplitz_slope=1.0,
    bidirectional=True,
):
    b, c = positions["weight"], toeplitz_far
    if not tie_cls and i == 0:
        return b[h, 0] * 0
    if not tie_cls and j == 0:
        return b[h, -1]
    clipped = max(-c, min(j - i, c if bidirectional else 0))
    return b[h, clipped + c] - toeplitz_slope * math.log(max(abs(j - i), c) / c)


positional_score, attend = biased(bias, score_terms=2)
