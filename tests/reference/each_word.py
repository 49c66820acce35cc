"""Encodings that enter the input: a function of each word and its position."""

from collections.abc import Callable

import torch
from torch import Tensor


def each_word(x: Tensor, move: Callable[[int, int, Tensor], Tensor], start: int = 0) -> Tensor:
    """x B×T×C through move(b, k, word), sentence by sentence; k counts from `start`."""
    moved = [
        torch.stack([move(b, start + t, word) for t, word in enumerate(sentence)])
        for b, sentence in enumerate(x)
    ]
    return torch.stack(moved)
