"""CoPE (Golovneva et al. 2024): score_ij = q_i·(k_j + e[p_ij]) / √d.

p_ij = Σ_{n=j..i} σ(q_i·k_n / √d) is cut at the last row of e, which is interpolated linearly
between whole positions. Keys on the right have position 0.
"""

import math

import torch

from . import attention
from .attention import project_per_head


def attend(x, weights, positions, num_heads, padding=None, **_):
    e = weights["layer_terms.weight"]

    def positional(sentence):
        q, k = (project_per_head(sentence, weights, f"{name}_proj", num_heads) for name in "qk")
        length = len(sentence)
        return attention.bias_table(
            lambda h, i, j: term(q[i][h], [k[n][h] for n in range(j, i + 1)], e),
            *(num_heads, length, length),
        )

    return attention.attend(x, weights, num_heads, padding, positional)


def term(q, keys, e):
    """q·e[p] / √d, p counted over these keys."""
    scale = 1 / math.sqrt(len(q))
    p = sum((torch.sigmoid(q.dot(k) * scale) for k in keys), q.new_zeros(()))
    p = p.clamp(max=e.size(1) - 1)
    below = math.floor(p)
    above = min(below + 1, e.size(1) - 1)
    vector = e[:, below] * (1 - (p - below)) + e[:, above] * (p - below)
    return q.dot(vector) * scale
