"""Disentangled attention (He et al. 2020, DeBERTa, equations 3 and 4).

score_ij = [ q_i·k_j + q_i·k^R_{δ(i,j)} + k_j·q^R_{δ(j,i)} ] / √(3d), k^R = P W^K_R, q^R = P W^Q_R,
δ(i,j) = 0 where i − j ≤ −clip, 2·clip − 1 where i − j ≥ clip, else i − j + clip.

As released (v2 and v3), with options: P is normalised; W^K_R and W^Q_R are W^K and W^Q; both
terms are read at δ(i,j); the number of terms is in the scale; distances have logarithmic buckets.

positions: "weight", P, perhaps "norm". weights: also "layer_terms.pos_k_proj" and
"layer_terms.pos_q_proj" if they are not shared.
"""

import math

import torch

from . import attention
from .attention import project_per_head

EPSILON = 1e-5


def attend(
    x,
    weights,
    positions,
    num_heads,
    padding=None,
    *,
    relative_clip=512,
    deberta_terms="c2p+p2c",
    deberta_released=False,
    deberta_buckets=0,
    deberta_share=False,
    deberta_norm=False,
):
    table = positions["weight"]
    if deberta_norm:
        table = torch.stack(
            [normalised(row, positions["norm.weight"], positions["norm.bias"]) for row in table]
        )
    rows = deberta_buckets or relative_clip
    terms = deberta_terms.split("+")
    prefix = "" if deberta_share else "layer_terms.pos_"
    if "c2p" in terms:
        key = project_per_head(table, weights, f"{prefix}k_proj", num_heads)
    if "p2c" in terms:
        query = project_per_head(table, weights, f"{prefix}q_proj", num_heads)

    def delta(i, j):
        n = i - j
        if deberta_buckets:
            n = bucket(n, deberta_buckets, relative_clip)
        return 0 if n <= -rows else 2 * rows - 1 if n >= rows else n + rows

    def score_term(h, i, j, q, k):
        found = 0
        if "c2p" in terms:
            found = found + q.dot(key[delta(i, j)][h])
        if "p2c" in terms:
            found = found + k.dot(query[delta(i, j) if deberta_released else delta(j, i)][h])
        return found

    count = 1 + sum(term != "none" for term in terms)
    return attention.attend(
        x, weights, num_heads, padding, score_terms=count, score_term=score_term
    )


def bucket(n, buckets, farthest):
    """n up to buckets // 2 = m, then m + ⌈ln(|n|/m) / ln((farthest−1)/m) · (m−1)⌉, signed."""
    m = buckets // 2
    if abs(n) <= m:
        return n
    steps = math.log(abs(n) / m) / math.log((farthest - 1) / m) * (m - 1)
    return int(math.copysign(m + math.ceil(steps), n))


def normalised(row, weight, bias):
    centred = row - row.mean()
    return centred / (centred.square().mean() + EPSILON).sqrt() * weight + bias
