"""Sandwich (Chi et al. 2023): score_ij = q_i·k_j / √d_model + H/(8h) (p_i·p_j − d/2).

p_i·p_j = Σ_{k=1}^{d/2} cos((i − j) / 10000^{2k/d}) is the product of sinusoids of width d, written
out; heads h are counted from 1.
"""

import math

import torch

from .attention import biased


def bias(h, i, j, positions, num_heads, *, sandwich_width=128):
    p_i = wave(i, sandwich_width)
    p_j = wave(j, sandwich_width)
    product = sum(a * b for a, b in zip(p_i, p_j, strict=True))
    value = num_heads / (8 * (h + 1)) * (product - sandwich_width / 2)
    return torch.tensor(value, dtype=torch.float64)


def wave(m, width):
    """sin and cos of m / 10000^{2k/width} for k = 1, ..., width/2."""
    angles = [m / 10000 ** (2 * k / width) for k in range(1, width // 2 + 1)]
    return [f(angle) for angle in angles for f in (math.sin, math.cos)]


positional_score, attend = biased(bias)
