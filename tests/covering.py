"""Rows of parameters in place of full products: each pair of values is met."""

import itertools
from collections.abc import Iterable, Sequence


def covering(first: Iterable, *others: Sequence) -> list[tuple]:
    """For each value of the first, each value of all others; pairs of the others meet in turn."""
    count = max(map(len, others))
    return [
        (each, *(values[(j + k * i) % len(values)] for k, values in enumerate(others)))
        for i, each in enumerate(first)
        for j in range(count)
    ]


def in_turn(first: Iterable, *others: Sequence) -> list[tuple]:
    """Each value of the first once; the combinations of the others take turns."""
    rows = [*itertools.product(*others)]
    # Shifted after each round, or else a period of the first could meet the same ones again.
    return [(each, *rows[(i + i // len(rows)) % len(rows)]) for i, each in enumerate(first)]
