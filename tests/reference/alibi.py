"""Attention with linear biases (Press et al. 2022): score_ij = q_i·k_j / √d − m_h |i − j|.

The symmetric form. m_h = 2^{−8h/H} with heads h counted from 1: a geometric sequence that starts
at 2^{−8/H}.
"""

import torch

from . import attention


def positional_score(positions, num_heads, queries, keys, start=0):
    """−m_h |i − j| as [head][query][key], for queries at start, ..., start + queries − 1."""
    slopes = [2 ** (-8 * h / num_heads) for h in range(1, num_heads + 1)]
    rows = range(start, start + queries)
    return [[[tensor(-m * abs(i - j)) for j in range(keys)] for i in rows] for m in slopes]


def tensor(value):
    return torch.tensor(value, dtype=torch.float64)


def attend(x, weights, positions, num_heads, padding=None):
    length = x.size(1)
    bias = positional_score(positions, num_heads, length, length)
    return attention.attend(x, weights, num_heads, padding, positional=bias)
