"""The lower bound on the time of a step: the matrix products of an encoder and nothing else."""

from collections import Counter
from collections.abc import Iterator

import torch

from tupe_fairseq.kernels.linear import LEAST_WORK, linear, prefers_onednn

from .compare import Step

#: Attention scores that are computed at a time: they stay in the cache.
CELLS = {"cpu": 1 << 18, "cuda": 1 << 24}

#: (matrices, rows, inner, columns) of batched products -> number of times.
Shapes = Counter[tuple[int, int, int, int]]


def shapes_of_layer(
    lengths: list[int], width: int, heads: int, ffn: int, learns: bool, cells: int
) -> Shapes:
    """Products of one layer for sentences of these lengths, without padding.

    In the backward pass a product has two: one for the gradient of each factor.

    Args:
        lengths: tokens of each sentence.
        width: of the model.
        heads: of attention.
        ffn: width of the feed-forward network.
        learns: whether there is a backward pass.
        cells: attention scores that are computed at a time.
    """
    shapes: Shapes = Counter()
    words = sum(lengths)
    for inputs, outputs in ((width, 3 * width), (width, width), (width, ffn), (ffn, width)):
        shapes[1, words, inputs, outputs] += 1
        shapes[1, words, outputs, inputs] += learns
        shapes[1, inputs, words, outputs] += learns
    for length, sentences in Counter(lengths).items():
        for matrices in pieces(sentences * heads, cells // length**2):
            for rows in pieces(length, cells // length):
                # q kᵀ, and the gradient of the weights
                shapes[matrices, rows, width // heads, length] += 1 + learns
                # Weights times v, and the gradients of q, k, v.
                shapes[matrices, rows, length, width // heads] += 1 + 3 * learns
    return +shapes


def pieces(total: int, size: int) -> Iterator[int]:
    """Parts of that size, at least 1, and the remainder."""
    size = max(1, size)
    for start in range(0, total, size):
        yield min(size, total - start)


def multiply(shapes: Shapes, layers: int, device: str, dtype: torch.dtype) -> Step:
    """All products of all layers, into preallocated memory; by oneDNN where that is faster."""
    random = {"device": device, "dtype": dtype}
    by_onednn = device == "cpu" and prefers_onednn()
    products = [
        (
            torch.randn(matrices, rows, inner, **random),
            torch.randn(matrices, inner, columns, **random),
            torch.empty(matrices, rows, columns, **random),
            times * layers,
        )
        for (matrices, rows, inner, columns), times in shapes.items()
    ]

    def step():
        for a, b, out, times in products:
            for _ in range(times):
                if len(a) == 1 and by_onednn and a.numel() * b.size(-1) >= LEAST_WORK:
                    linear(a[0], b[0].t(), None)
                elif len(a) == 1:
                    torch.mm(a[0], b[0], out=out[0])
                else:
                    torch.bmm(a, b, out=out)

    return step
