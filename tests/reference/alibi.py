"""Attention with linear biases (Press et al. 2022): score_ij = q_i·k_j / √d − m_h |i − j|.

The symmetric form. m_h = 2^{−8h/H} with heads h counted from 1: a geometric sequence that starts
at 2^{−8/H}.
"""

import torch

from .attention import attend_with, bias_table


def positional_score(positions, num_heads, queries, keys, start=0):
    """−m_h |i − j|, H×T×S, for queries at start, ..., start + queries − 1."""

    def bias(h, i, j):
        slope = 2 ** (-8 * (h + 1) / num_heads)
        return torch.tensor(-slope * abs(i - j), dtype=torch.float64)

    return bias_table(bias, num_heads, queries, keys, start)


attend = attend_with(positional_score)
