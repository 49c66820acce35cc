"""BERT-A: score_ij = (x+p)_i W^Q ((x+p)_j W^K)ᵀ / √d; p enters the values too.

positions: "weight", where row k + 2 holds p_k, as in fairseq (whose padding index is 1).
"""

from . import attention
from .each_word import each_word


def attend(x, weights, positions, num_heads, padding=None):
    moved = each_word(x, lambda b, k, word: word + positions["weight"][k + 2])
    return attention.attend(moved, weights, num_heads, padding)
