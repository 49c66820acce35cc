"""KERPLE (Chi et al. 2022): score_ij = q_i·k_j / √d + kernel_h(|i − j|).

Logarithmic kernel: −p ln(1 + a |i − j|). Power kernel: −a |i − j|^p. p and a are at least 0.01, p
of the power kernel is at most 2; gradients are those without bounds.

positions: p and a, one number per head: "strength" and "rate", or "exponent" and "slope".
"""

import math

from .attention import biased


def bounded(parameter, most=math.inf):
    """The value within bounds, with the derivative 1."""
    value = parameter.item()
    return parameter + (min(max(value, 0.01), most) - value)


def logarithmic(h, i, j, positions, num_heads):
    p = bounded(positions["strength"][h])
    a = bounded(positions["rate"][h])
    return -p * (1 + a * abs(i - j)).log()


def power(h, i, j, positions, num_heads):
    p = bounded(positions["exponent"][h], 2.0)
    a = bounded(positions["slope"][h])
    # 0^p is 0 for any p.
    return -a * p.mul(math.log(abs(i - j))).exp() if i != j else 0 * (p + a)


positional_score_log, attend_log = biased(logarithmic)
positional_score_power, attend_power = biased(power)
