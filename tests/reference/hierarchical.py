"""Hierarchical decomposition (Su 2020): q_{(i−1)·n+j} = α u_i + (1−α) u_j.

u = (p − α p_1) / (1 − α), α = 0.4, i and j from 1 to n, positions counted from 1.

positions: "weight", p_1, ..., p_n.
"""

from .each_word import each_word

ALPHA = 0.4


def embed(x, positions, tokens=None, padding=None, start=0, *, hierarchical_rows=512):
    assert len(positions["weight"]) == hierarchical_rows
    q = decompose(positions["weight"])
    return each_word(x, lambda b, k, word: word + q[k + 1], start)


def decompose(table):
    """{position, counted from 1: q}, n² of them."""
    n = len(table)
    p = {i: table[i - 1] for i in range(1, n + 1)}
    u = {i: (p[i] - ALPHA * p[1]) / (1 - ALPHA) for i in p}
    return {(i - 1) * n + j: ALPHA * u[i] + (1 - ALPHA) * u[j] for i in u for j in u}
