"""BERT-R: score_ij = x_i W^Q (x_j W^K)ᵀ / √d + b_bucket(j−i).

positions: "relative_bias.weight", one row per bucket, one column per head.
"""

from . import attention
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
    """b_bucket(j−i) as [head][query][key], for queries at start, ..., start + queries − 1."""
    b = positions["relative_bias.weight"]
    return [
        [
            [b[bucket(j - i, num_buckets, max_distance, bidirectional), h] for j in range(keys)]
            for i in range(start, start + queries)
        ]
        for h in range(num_heads)
    ]


def attend(x, weights, positions, num_heads, padding=None, **options):
    length = x.size(1)
    bias = positional_score(positions, num_heads, length, length, **options)
    return attention.attend(x, weights, num_heads, padding, positional=bias)
