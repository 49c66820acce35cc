"""BERT-R: score_ij = x_i W^Q (x_j W^K)ᵀ / √d + b_bucket(j−i).

positions: "relative_bias.weight", one row per bucket, one column per head.
"""

from .attention import biased
from .buckets import bucket


def bias(h, i, j, positions, num_heads, *, num_buckets=32, max_distance=128, bidirectional=True):
    row = bucket(j - i, num_buckets, max_distance, bidirectional)
    return positions["relative_bias.weight"][row, h]


positional_score, attend = biased(bias)
