"""Random numbers by which encodings are initialised."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def own_random_numbers() -> Iterator[None]:
    """What is initialised inside leaves torch's generator as if it had drawn a single number.

    So that models of one seed that differ in their encoding begin with the same weights elsewhere.
    """
    seed = int(torch.empty((), dtype=torch.int64, device="cpu").random_())
    state = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(state)
