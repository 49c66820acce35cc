"""CAPE (Likhomanenko et al. 2021): x + p_{(t + Δ + ε_t)·λ}, p of Vaswani et al. 2017.

The draws are given: Δ and λ for each sentence, ε_t for each word; without them, evaluation.
"""

from .each_word import each_word
from .sinusoidal import wave


def embed(x, positions, tokens=None, padding=None, start=0, draws=None, **options):
    def augmented(b, k):
        if draws is None:
            return k
        shift, local, scale = draws[b]
        return (k + shift + local[k]) * scale

    return each_word(x, lambda b, k, word: word + wave(augmented(b, k), len(word)), start)
