"""SHAPE (Kiyono et al. 2021): x + p_{t+k}, p of Vaswani et al. 2017.

The draws are given: k for each sentence; without them, evaluation, where k = K.
"""

from .each_word import each_word
from .sinusoidal import wave


def embed(x, positions, tokens=None, padding=None, start=0, draws=None, *, shape_shifts=500):
    def shift(b):
        return shape_shifts if draws is None else draws[b]

    return each_word(x, lambda b, k, word: word + wave(k + shift(b), len(word)), start)
