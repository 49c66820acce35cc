"""Convolution (Islam et al. 2020): x_k + b + Σ_m W_m x_{k+m}, zeros beyond the ends.

m runs over −K/2, ..., K/2; one-sided, over −K+1, ..., 0. A channel sees its own group of channels
only. Padding counts as beyond the end.

positions: "conv.weight", W, C×(C/groups)×K, and "conv.bias", b.
"""

import torch

from .each_word import each_word


def embed(
    x,
    positions,
    tokens=None,
    padding=None,
    start=0,
    *,
    cnn_kernel=31,
    cnn_groups=16,
    bidirectional=True,
):
    assert start == 0, "the words before `start` are not known"
    weight = positions["conv.weight"]
    bias = positions["conv.bias"]
    group = x.size(2) // cnn_groups
    left = cnn_kernel // 2 if bidirectional else cnn_kernel - 1

    def inside(b, k):
        return 0 <= k < x.size(1) and (padding is None or not padding[b, k])

    def convolved(b, k, c):
        first = c // group * group
        total = bias[c]
        for tap in range(cnn_kernel):
            neighbour = k + tap - left
            if inside(b, neighbour):
                total = total + weight[c, :, tap].dot(x[b, neighbour, first : first + group])
        return total

    def move(b, k, word):
        return word + torch.stack([convolved(b, k, c) for c in range(len(word))])

    return each_word(x, move)
