"""xPos (Sun et al. 2022): rotary positions whose pairs are scaled by ζ^{k/512}, or its inverse.

Pair i of a query at position k is turned by k·θ_i and multiplied by ζ_i^{k/512}, that of a key by
ζ_i^{−k/512}, ζ_i = (2i + 0.4·d) / (1.4·d).
"""

import torch

from . import attention
from .attention import project_moved
from .rope import rotate


def attend(
    x, weights, positions, num_heads, padding=None, *, rope_theta=10000.0, xpos_scale_base=512, **_
):
    signs = {"q_proj": 1, "k_proj": -1}

    def turn(name, head, k):
        if name not in signs:
            return head
        return decays(len(head), signs[name] * k / xpos_scale_base) * rotate(head, k, rope_theta)

    return attention.attend(x, weights, num_heads, padding, project=project_moved(turn))


def decays(d, power):
    """ζ_i^power, twice for each pair."""
    zeta = [(2 * i + 0.4 * d) / (1.4 * d) for i in range(d // 2)]
    return torch.tensor([z**power for z in zeta for _ in range(2)], dtype=torch.float64)
