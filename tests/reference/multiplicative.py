"""Multiplicative positions (Su 2021): x ⊗ p_k.

positions: "weight", p, a row per position.
"""

from .each_word import each_word


def embed(x, positions, tokens=None, padding=None, start=0):
    return each_word(x, lambda b, k, word: word * positions["weight"][k], start)
