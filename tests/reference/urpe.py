"""URPE (Luo et al. 2022): o_i = Σ_j softmax_j(q_i·k_j / √d + b_{j−i}) C_{j−i} v_j.

positions: "relative_bias.weight", b as T5's, and "relative_factor.weight", C by the same buckets.
"""

from . import attention, t5


def attend(x, weights, positions, num_heads, padding=None, **options):
    length = x.size(1)
    added = t5.positional_score(positions, num_heads, length, length, **options)
    table = {"relative_bias.weight": positions["relative_factor.weight"]}

    def factor(h, i, j):
        return t5.bias(h, i, j, table, num_heads, **options)

    return attention.attend(x, weights, num_heads, padding, added, factor=factor)
