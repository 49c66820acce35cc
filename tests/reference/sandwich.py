"""Sandwich (Chi et al. 2023): score_ij = q_i·k_j / √d_model + H/(8h) (p_i·p_j − d/2).

p_i·p_j = Σ_{k=1}^{d/2} cos((i − j) / 10000^{2k/d}) is the product of sinusoids of width d, written
out; heads h are counted from 1.
"""

import math

import torch

from .attention import attend_with, bias_table


def positional_score(positions, num_heads, queries, keys, start=0, *, sandwich_width=128):
    """The bias, H×T×S, for queries at start, ..., start + queries − 1."""
    waves = [wave(m, sandwich_width) for m in range(max(start + queries, keys))]

    def bias(h, i, j):
        product = sum(a * b for a, b in zip(waves[i], waves[j], strict=True))
        value = num_heads / (8 * (h + 1)) * (product - sandwich_width / 2)
        return torch.tensor(value, dtype=torch.float64)

    return bias_table(bias, num_heads, queries, keys, start)


def wave(m, width):
    """sin and cos of m / 10000^{2k/width} for k = 1, ..., width/2."""
    angles = [m / 10000 ** (2 * k / width) for k in range(1, width // 2 + 1)]
    return [f(angle) for angle in angles for f in (math.sin, math.cos)]


attend = attend_with(positional_score)
