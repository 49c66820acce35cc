"""MPNet: score_ij = (x+p)_i W^Q ((x+p)_j W^K)ᵀ / √d + b_bucket(j−i); p enters the values too.

positions: "weight" as in learned.py, "relative_bias.weight" as in t5.py.
"""

from . import t5
from .each_word import each_word


def attend(x, weights, positions, num_heads, padding=None, **options):
    table = positions["weight"]
    moved = each_word(x, lambda b, k, word: word + table[k + 2])
    return t5.attend(moved, weights, positions, num_heads, padding, **options)
