"""BERT-A: score_ij = (x+p)_i W^Q ((x+p)_j W^K)ᵀ / √d; p enters the values too.

positions: "weight", where row k + 2 holds p_k, as in fairseq (whose padding index is 1).
"""

import torch

from . import attention


def attend(x, weights, positions, num_heads, padding=None):
    table = positions["weight"]
    moved = [
        torch.stack([word + table[k + 2] for k, word in enumerate(sentence)]) for sentence in x
    ]
    return attention.attend(torch.stack(moved), weights, num_heads, padding)
