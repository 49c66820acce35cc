"""DAPE (Zheng et al. 2024): score_ij = s_ij + b_ij + f(s_ij, b_ij), f a network over all heads.

b is ALiBi's.
"""

import math

import torch

from . import alibi, attention
from .attention import linear, project_per_head


def attend(x, weights, positions, num_heads, padding=None, **_):
    b = alibi.positional_score(positions, num_heads, x.size(1), x.size(1))

    def positional(sentence):
        q, k = (project_per_head(sentence, weights, f"{name}_proj", num_heads) for name in "qk")
        added = [
            torch.stack([corrected(q_i, k_j, b[:, i, j], weights) for j, k_j in enumerate(k)])
            for i, q_i in enumerate(q)
        ]
        # T×T×H -> H×T×T
        return torch.stack(added).permute(2, 0, 1)

    return attention.attend(x, weights, num_heads, padding, positional)


def corrected(q_i, k_j, b_ij, weights):
    """b_ij + f(s_ij, b_ij) of all heads."""
    s_ij = torch.stack([q.dot(k) / math.sqrt(len(q)) for q, k in zip(q_i, k_j, strict=True)])
    hidden = linear(torch.cat((s_ij, b_ij)), weights, "layer_terms.fc1")
    hidden = torch.stack([v if v > 0 else 0.01 * v for v in hidden])
    return b_ij + linear(hidden, weights, "layer_terms.fc2")
