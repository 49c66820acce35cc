"""Attention with linear biases (Press et al. 2022): score_ij = q_i·k_j / √d − m_h |i − j|.

The symmetric form. m_h = 2^{−8h/H} with heads h counted from 1: a geometric sequence that starts
at 2^{−8/H}.
"""

import torch

from .attention import biased


def bias(h, i, j, positions, num_heads):
    slope = 2 ** (-8 * (h + 1) / num_heads)
    return torch.tensor(-slope * abs(i - j), dtype=torch.float64)


positional_score, attend = biased(bias)
