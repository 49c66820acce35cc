"""FLOATER (Liu et al. 2020, equation 3): x + p(t_k), p(t) = p(s) + ∫_s^t h(τ, p(τ)) dτ.

h(τ, p) = W2 tanh(W1 [p ; τ] + b1) + b2, t_k = 0.1·k.

positions: "first", p(0); "dynamics.0" and "dynamics.2" (".weight", ".bias"): W1, b1, W2, b2.

The solver is Kutta's 3/8 rule, which torchdiffeq calls "rk4".
"""

import torch

from .attention import linear
from .each_word import each_word

STEP = 0.1


def embed(x, positions, tokens=None, padding=None, start=0, *, floater_steps=1, floater_width=64):
    assert len(positions["dynamics.0.bias"]) == floater_width
    p = path(positions, start + x.size(1), floater_steps)
    return each_word(x, lambda b, k, word: word + p[k], start)


def path(positions, length, steps):
    """p(t_0), ..., p(t_{length−1}), with that many steps of the solver between neighbours."""

    def h(time, p):
        moment = torch.tensor([time], dtype=p.dtype)
        hidden = linear(torch.cat([p, moment]), positions, "dynamics.0").tanh()
        return linear(hidden, positions, "dynamics.2")

    found = [positions["first"]]
    for k in range(length - 1):
        p = found[-1]
        for n in range(steps):
            p = p + three_eighths(h, STEP * (k + n / steps), p, STEP / steps)
        found.append(p)
    return found


def three_eighths(h, t, p, dt):
    k1 = h(t, p)
    k2 = h(t + dt / 3, p + dt * k1 / 3)
    k3 = h(t + 2 * dt / 3, p + dt * (k2 - k1 / 3))
    k4 = h(t + dt, p + dt * (k1 - k2 + k3))
    return dt * (k1 + 3 * k2 + 3 * k3 + k4) / 8
