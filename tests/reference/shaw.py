"""Relative position representations (Shaw et al. 2018, equations 3 and 4).

score_ij = x_i W^Q (x_j W^K + R^K_{clip(i−j)})ᵀ / √d, o_i = Σ_j a_ij (x_j W^V + R^V_{clip(i−j)}).

weights: also "layer_terms.key", R^K, and "layer_terms.value_weight", R^V; rows from distance
i − j = −clip to clip, shared by the heads; one-sided, from 0.
"""

from . import attention


def attend(
    x, weights, positions, num_heads, padding=None, *, relative_clip=16, bidirectional=True
):
    key = weights["layer_terms.key"]
    value = weights["layer_terms.value_weight"]
    lowest = -relative_clip if bidirectional else 0
    assert len(key) == len(value) == relative_clip + 1 - lowest

    def row(i, j):
        return max(lowest, min(relative_clip, i - j)) - lowest

    return attention.attend(
        x,
        weights,
        num_heads,
        padding,
        score_term=lambda h, i, j, q, k: q.dot(key[row(i, j)]),
        value_term=lambda h, i, j: value[row(i, j)],
    )
