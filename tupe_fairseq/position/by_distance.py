"""A term of absolute positions continued by distance: `--extend-positions toeplitz`.

TUPE adds t_ij = p_i U^Q (p_j U^K)ᵀ / √(2D), for TUPE-R with b_{j−i}, to the scores: one matrix for
each head, which depends on no token. A trained one depends mostly on the distance j − i. So pairs
of trained positions (i, j < L) keep t_ij, and the means of its diagonals serve all other pairs:

    f_d = mean of t_ij over j − i = d                        for |d| < c
    f_d = mean of t_ij over all j − i ≥ c, minus s ln(d/c)   for d ≥ c; alike for d ≤ −c

c is --toeplitz-far and s is --toeplitz-slope. Why this form:

- The means are the Toeplitz matrix nearest to t. Σ_ij (t_ij − f_{j−i})² is one sum for each
  distance, and the mean minimises each: least squares, the orthogonal projection of t.
- An untied [CLS] is left out of the means and keeps its two constants. They replace the term, so
  they say nothing about a distance, and [CLS] is at no place in the text.
- Of N positions, N − |d| pairs have the distance d, and one has the largest. Means of few cells
  are noisy, so distances from c on share the mean of all their cells on that side. This is the
  nearest matrix again, among those that are constant there.
- With one value for all of them, far keys would get a share of the softmax that grows with their
  number. Minus s ln(d/c), a far key weighs (c/d)^s of what it would. With s = 1, the sum of c/d up
  to T is about c ln(T/c): each doubling of the length adds the same.

The means are differentiable, so training at the new length continues from them.

There is no paper. Wang & Chen (2020, "What Do Position Embeddings Learn?") describe the diagonals
of learned positions.
"""

from typing import Annotated

import torch
from torch import Tensor

from ..base.options import Mark
from .bias import AttentionBias
from .indices import diagonal_sums, distances

TrainedPositions = Annotated[
    int | None,
    "positions of the checkpoint that --extend-positions toeplitz extends; checkpoints record it",
    Mark.FREE,
]
ToeplitzFar = Annotated[
    int | None,
    "distance from which all distances share one value; default: half of the trained positions",
    Mark.FOR_LONGER_TEXTS,
]
ToeplitzSlope = Annotated[
    float,
    "factor of ln(distance / far), which lowers the value beyond --toeplitz-far",
    Mark.FOR_LONGER_TEXTS,
]


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
    first = size - far
    stop = size + far - 1
    near = sums[:, first:stop] / counts[first:stop]
    left = sums[:, :first].sum(-1, keepdim=True) / counts[:first].sum()
    right = sums[:, stop:].sum(-1, keepdim=True) / counts[stop:].sum()
    return torch.cat((left, near, right), -1)


def bias_by_distance(
    values: Tensor,
    far: int,
    slope: float,
    queries: int,
    keys: int,
    start: int = 0,
    cls: Tensor | None = None,
) -> AttentionBias:
    """The term of values by distance.

    Args:
        values: H×R, of the distances −c, −c + 1, ...; farther ones read the last on their side.
        far: c.
        slope: s.
        queries: T.
        keys: S.
        start: position of the first query.
        cls: θ1 and θ2 of an untied [CLS], H×2, or None.
    """
    distance = distances(queries, keys, start, values.device)
    beyond = (distance.abs().clamp(min=far).to(values.dtype) / far).log()
    by_distance = values[:, (distance + far).clamp(0, values.size(-1) - 1)] - slope * beyond
    return AttentionBias(keys, by_distance=by_distance, start=start, cls=cls)
