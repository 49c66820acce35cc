"""Rotary positions (Su et al. 2021, equation 15): score_ij = (R_i x_i W^Q)·(R_j x_j W^K) / √d.

R_k turns the pair (2i, 2i+1) of a head's dimensions by k·θ_i, θ_i = base^{−2i/d}. Options: the
values are turned too, o_i = Σ_j a_ij R_j x_j W^V; pairs are (i, i + d/2); only the first
dimensions are turned, and d is their number or, proportional, that of all; positions are divided
by a factor.
"""

import math

import torch

from . import attention
from .attention import project_moved


def attend(
    x,
    weights,
    positions,
    num_heads,
    padding=None,
    *,
    rope_theta=10000.0,
    rope_values=False,
    rope_halves=False,
    rope_fraction=1.0,
    rope_proportional=False,
    rope_scaling=None,
    rope_scaling_factor=1.0,
):
    assert rope_scaling in (None, "linear")
    turned = ("q_proj", "k_proj", "v_proj") if rope_values else ("q_proj", "k_proj")

    def turn(name, head, k):
        if name not in turned:
            return head
        d = int(len(head) * rope_fraction)
        width = len(head) if rope_proportional else d
        order = list(range(d))
        if rope_halves:
            order = [i + half for i in range(d // 2) for half in (0, d // 2)]
        moved = torch.empty(d, dtype=head.dtype)
        moved[order] = rotate(head[order], k / rope_scaling_factor, rope_theta, width)
        return torch.cat((moved, head[d:]))

    return attention.attend(x, weights, num_heads, padding, project=project_moved(turn))


def rotate(vector, k, base, width=None):
    """R_k · vector, pair by pair, by the frequencies of this width or the vector's."""
    width = width or len(vector)
    return torch.cat(
        [
            rotation(k * base ** (-2 * i / width)).mv(vector[2 * i : 2 * i + 2])
            for i in range(len(vector) // 2)
        ]
    )


def rotation(angle):
    cos = math.cos(angle)
    sin = math.sin(angle)
    return torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float64)
