"""Separate random numbers for the initialisation of encodings."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def isolated_rng() -> Iterator[None]:
    """Draw random numbers inside from a separate seed; torch's generator draws one number.

    Models with the same seed and different encodings thus have the same weights elsewhere.
    """
    seed = int(torch.empty((), dtype=torch.int64, device="cpu").random_())
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
