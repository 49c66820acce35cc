"""A term of absolute positions continued by distance: `--extend-positions toeplitz`.

TUPE adds t_ij = p_i U^Q (p_j U^K)ᵀ / √(2D), for TUPE-R with b_{j−i}, to the scores: one matrix for
each head, which depends on no token. A trained one depends mostly on the distance j − i. So pairs
of trained positions (i, j < L) keep t_ij, and the means of its diagonals serve all other pairs:

    f_d = mean of t_ij over j − i = d                        for |d| < c
    f_d = mean of t_ij over all j − i ≥ c, minus s ln(d/c)   for d ≥ c; alike for d ≤ −c

An untied [CLS] is left out of the means and keeps its two constants. c is --toeplitz-far and s is
--toeplitz-slope; with s = 1, each doubling of the distance has the same weight in the softmax. The
means are differentiable, so training at the new length continues from them.

There is no paper. Wang & Chen (2020, "What Do Position Embeddings Learn?") describe the diagonals
of learned positions.
"""

from typing import Annotated

import torch
from torch import Tensor

from ..errors import ConfigurationError
from .indices import diagonal_sums
from .sizes import Shape

TrainedPositions = Annotated[
    int | None,
    "positions of the checkpoint that --extend-positions toeplitz extends; checkpoints record it",
]
ToeplitzFar = Annotated[
    int | None,
    "with --extend-positions toeplitz: the distance from which all read one mean (default: half "
    "of the trained positions)",
]
ToeplitzSlope = Annotated[
    float, "with --extend-positions toeplitz: how much ln(distance / far) lowers that mean"
]


def trained_length(shape: Shape, trained_positions: int | None) -> int:
    """How many positions have a row in the table.

    Raises:
        ConfigurationError: with --extend-positions toeplitz, more than --max-positions.
    """
    longest = shape.max_positions
    if shape.extension != "toeplitz" or trained_positions is None:
        return longest
    if not 2 < trained_positions <= longest:
        raise ConfigurationError(
            f"--trained-positions is {trained_positions}, but must be at least 3 and at most "
            f"--max-positions, which is {longest}."
        )
    return trained_positions


def check_far(far: int | None, size: int) -> int:
    """--toeplitz-far, or its default, for a term of N×N cells.

    Raises:
        ConfigurationError: no cell is so far away.
    """
    if far is None:
        return max(1, size // 2)
    if not 0 < far < size:
        raise ConfigurationError(
            f"--toeplitz-far is {far}, but must be at least 1 and below {size}, the trained "
            "positions without an untied [CLS]."
        )
    return far


def mean_by_distance(cells: Tensor, far: int) -> Tensor:
    """The means f of a term over the cells of equal distance.

    Args:
        cells: t, H×N×N.
        far: c, below N.

    Returns:
        H×(2c+1), for d = −c, ..., c. The ends are the means of all cells at least so far away.
    """
    size = cells.size(-1)
    sums = diagonal_sums(cells)
    counts = size - torch.arange(1 - size, size, device=cells.device).abs()
    # Index n + size − 1 holds distance n.
    first, stop = size - far, size + far - 1
    near = sums[:, first:stop] / counts[first:stop]
    left = sums[:, :first].sum(-1, keepdim=True) / counts[:first].sum()
    right = sums[:, stop:].sum(-1, keepdim=True) / counts[stop:].sum()
    return torch.cat((left, near, right), -1)


def at_distances(means: Tensor, distance: Tensor, slope: float) -> Tensor:
    """The values of any distances: H×(2c+1) and N distances to H×N."""
    far = means.size(-1) // 2
    found = means[:, distance.clamp(-far, far) + far]
    beyond = (distance.abs().clamp(min=far).to(means.dtype) / far).log()
    return found - slope * beyond
