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
    outputs, maps = [], []
    for n, sentence in enumerate(x):
        q, k = (project_per_head(sentence, weights, f"{name}_proj", num_heads) for name in "qk")
        added = [
            [[term(q, k, e, h, i, j) for j in range(len(k))] for i in range(len(q))]
            for h in range(num_heads)
        ]
        padded = [False] * len(sentence) if padding is None else padding[n].tolist()
        output, a = attention.attend_sentence(
            sentence, weights, num_heads, padded, positional=added
        )
        outputs.append(output)
        maps.append(a)
    return torch.stack(outputs), torch.stack(maps)


def term(q, k, e, h, i, j):
    scale = 1 / math.sqrt(len(q[i][h]))
    gates = [torch.sigmoid(q[i][h].dot(k[n][h]) * scale) for n in range(j, i + 1)]
    p = torch.clamp(sum(gates, q[i][h].new_zeros(())), max=e.size(1) - 1)
    below = math.floor(p)
    above = min(below + 1, e.size(1) - 1)
    vector = e[:, below] * (1 - (p - below)) + e[:, above] * (p - below)
    return q[i][h].dot(vector) * scale
