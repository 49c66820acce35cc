"""How near the vectors of a changed model are to those of its source."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

#: Tokens of each text of the standard set.
LENGTHS = range(2, 34, 2)
#: The limits of the least cosine by precision.
LEAST_COSINES = {"fp32": 0.9999, "bf16": 0.99, "int8": 0.98}


class Fidelity(NamedTuple):
    """Cosines of the vectors of texts to those of the source.

    Attributes:
        precision: of the changed model.
        mean: over the texts.
        least: of a text.
        texts: their number.
    """

    precision: str
    mean: float
    least: float
    texts: int

    def __str__(self) -> str:
        return (
            f"cosine to the source in {self.precision}: {self.mean:.5f} on average of "
            f"{self.texts} texts, {self.least:.5f} at least"
        )


def vector(outputs: Tensor) -> Tensor:
    """The vector of a text: the mean over its tokens of T×C, or C itself; in fp64."""
    outputs = outputs.detach().cpu().double()
    return outputs.mean(0) if outputs.dim() == 2 else outputs


def compare(precision: str, found: Iterable[Tensor], expected: Iterable[Tensor]) -> Fidelity:
    """The fidelity of vectors, one of each text."""
    pairs = zip(found, expected, strict=True)
    cosines = torch.stack([torch.cosine_similarity(*pair, dim=0) for pair in pairs])
    return Fidelity(precision, cosines.mean().item(), cosines.min().item(), len(cosines))


def standard_ids(vocabulary: int, padding: int | None, longest: int) -> list[list[int]]:
    """The standard set: texts of random tokens but padding, of at most `longest` tokens."""
    generator = torch.Generator().manual_seed(0)
    # No draw is the number of padding: those from there on are one more.
    first = vocabulary if padding is None else padding
    most = vocabulary - (first < vocabulary)
    lengths = [min(length, longest) for length in LENGTHS]
    draws = [torch.randint(most, (each,), generator=generator) for each in lengths]
    return [(draw + (draw >= first)).tolist() for draw in draws]
