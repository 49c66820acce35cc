"""BERT-R: score_ij = x_i W^Q (x_j W^K)ᵀ / √d + b_bucket(j−i).

positions: "relative_bias.weight", one row per bucket, one column per head.
"""

from .attention import attend_with, bias_table
from .buckets import bucket


def positional_score(
    positions,
    num_heads,
    queries,
    keys,
    start=0,
    *,
    num_buckets=32,
    max_distance=128,
    bidirectional=True,
):
    """b_bucket(j−i), H×T×S, for queries at start, ..., start + queries − 1."""
    b, how = positions["relative_bias.weight"], (num_buckets, max_distance, bidirectional)
    return bias_table(lambda h, i, j: b[bucket(j - i, *how), h], num_heads, queries, keys, start)


attend = attend_with(positional_score)
