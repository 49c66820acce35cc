"""Sinusoidal positions (Vaswani et al. 2017, section 3.5): x + p_k.

p_{k,2i} = sin(k / 10000^{2i/C}), p_{k,2i+1} = cos(k / 10000^{2i/C}).
"""

import math

import torch

from .each_word import each_word


def embed(x, positions, tokens=None, padding=None, start=0):
    return each_word(x, lambda b, k, word: word + wave(k, len(word)), start)


def wave(k, width):
    """p_k, width channels; k may be negative."""
    return torch.tensor([channel_of(k, c, width) for c in range(width)], dtype=torch.float64)


def channel_of(k, c, width):
    i = c // 2
    angle = k / 10000 ** (2 * i / width)
    return math.sin(angle) if c == 2 * i else math.cos(angle)
