"""Initial values of learned vectors, and their random numbers."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


def random_vectors(*size: int) -> nn.Parameter:
    """Learned vectors, initialised as BERT's: from a normal distribution of deviation 0.02."""
    vectors = nn.Parameter(torch.empty(size))
    # While transformers 4 loads a model, this does nothing and returns None.
    nn.init.normal_(vectors, std=0.02)
    return vectors


@contextmanager
def isolated_rng() -> Iterator[None]:
    """Draw random numbers inside from a separate seed; torch's generator draws one number.

    Models with the same seed and different encodings thus have the same weights elsewhere.
    """
    seed = int(torch.empty((), dtype=torch.int64, device="cpu").random_())
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
