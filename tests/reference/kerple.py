"""KERPLE (Chi et al. 2022): score_ij = q_i·k_j / √d + kernel_h(|i − j|).

Logarithmic kernel: −p ln(1 + a |i − j|). Power kernel: −a |i − j|^p. p and a are at least 0.01, p
of the power kernel is at most 2; gradients are those without bounds.

positions: p and a, one number per head: "strength" and "rate", or "exponent" and "slope".
"""

import functools
import math

from . import attention


def bounded(parameter, most=math.inf):
    """The value within bounds, with the derivative 1."""
    value = parameter.item()
    return parameter + (min(max(value, 0.01), most) - value)


def logarithmic(p, a, distance):
    return -bounded(p) * (1 + bounded(a) * distance).log()


def power(p, a, distance):
    # 0^p is 0 for any p.
    return -bounded(a) * bounded(p, 2.0).mul(math.log(distance)).exp() if distance else 0 * (p + a)


NAMES = {logarithmic: ("strength", "rate"), power: ("exponent", "slope")}


def positional_score(positions, num_heads, queries, keys, start=0, *, kernel):
    """kernel_h(|i − j|) as [head][query][key], for queries at start, ..., start + queries − 1."""
    rows = range(start, start + queries)
    heads = list(zip(*(positions[name] for name in NAMES[kernel]), strict=True))
    return [[[kernel(p, a, abs(i - j)) for j in range(keys)] for i in rows] for p, a in heads]


def attend(x, weights, positions, num_heads, padding=None, *, kernel):
    length = x.size(1)
    bias = positional_score(positions, num_heads, length, length, kernel=kernel)
    return attention.attend(x, weights, num_heads, padding, positional=bias)


attend_log = functools.partial(attend, kernel=logarithmic)
attend_power = functools.partial(attend, kernel=power)
