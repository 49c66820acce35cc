"""Disentangled attention (He et al. 2020, DeBERTa, equations 3 and 4).

score_ij = [ q_i·k_j + q_i·k^R_{δ(i,j)} + k_j·q^R_{δ(j,i)} ] / √(3d), k^R = P W^K_R, q^R = P W^Q_R,
δ(i,j) = 0 where i − j ≤ −clip, 2·clip − 1 where i − j ≥ clip, else i − j + clip.

positions: "weight", P. weights: also "layer_terms.pos_k_proj" and "layer_terms.pos_q_proj".
"""

from . import attention
from .attention import project_per_head


def attend(x, weights, positions, num_heads, padding=None, *, relative_clip=512):
    key = project_per_head(positions["weight"], weights, "layer_terms.pos_k_proj", num_heads)
    query = project_per_head(positions["weight"], weights, "layer_terms.pos_q_proj", num_heads)

    def delta(i, j):
        if i - j <= -relative_clip:
            return 0
        if i - j >= relative_clip:
            return 2 * relative_clip - 1
        return i - j + relative_clip

    def score_term(h, i, j, q, k):
        return q.dot(key[delta(i, j)][h]) + k.dot(query[delta(j, i)][h])

    return attention.attend(x, weights, num_heads, padding, score_terms=3, score_term=score_term)
