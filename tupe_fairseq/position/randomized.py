"""Randomised positions (Ruoss et al. 2023): drawn from a range longer than the texts.

In training, a sequence of T tokens gets T positions, drawn without replacement from 0, ..., N − 1
and sorted. Encodings whose scores depend on the distance alone draw T − 1 distances from 1, ...,
N − 1 instead, which replace 1, ..., T − 1 on both sides, so that scores still depend on j − i
alone. There is one draw for each forward pass, for all sequences and layers;
the authors' code draws anew in each layer where positions act in attention.

Departure: evaluation draws nothing. It spreads the longest sequence evenly over the range: token k
of at most L stands at ⌊kN/L⌋. So outputs are the same each time, with and without a cache.
"""

import copy
from itertools import chain
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from ..base.errors import ConfigurationError
from ..base.options import Mark
from .base import PositionEncoding, Shape
from .bias import AttentionBias
from .indices import distances

RandomizePositions = Annotated[
    int,
    "draw the positions of each forward pass from 0, ..., N - 1 (Ruoss 2023); 0: do not",
    Mark.FREE,
]


class RandomizedEncoding(PositionEncoding):
    """Base of the encodings that can have the option --randomize-positions, N or 0.

    Raises:
        ConfigurationError: N is smaller than the longest sequence.
    """

    #: Whether distances are drawn, and position 0 stays.
    draws_distances = False
    #: What this pass has drawn: positions, or what replaces the distances 0, ..., T − 1.
    drawn: Tensor | None = None

    def __init__(self, shape: Shape, randomize_positions: int = 0):
        super().__init__(shape)
        if randomize_positions and randomize_positions < shape.max_positions:
            raise ConfigurationError(
                f"--randomize-positions is {randomize_positions}, but must be at least the "
                f"number of positions {shape.max_positions} of the longest sequence, or 0."
            )
        self.randomize_positions = randomize_positions

    @property
    def reach(self) -> int:
        """The number of positions that can occur."""
        return self.randomize_positions or self.shape.max_positions

    def for_pass(
        self, length: int, device: torch.device, padding_mask: Tensor | None = None
    ) -> PositionEncoding:
        if not self.randomize_positions or not self.training:
            return self
        kept = int(self.draws_distances)
        order = torch.randperm(self.randomize_positions - kept, device=device)
        drawn = copy.copy(self)
        drawn.drawn = F.pad(order[: length - kept].sort().values + kept, (kept, 0))
        return drawn

    def positions(self, start: int, stop: int, device: torch.device) -> slice | Tensor:
        """The rows of tokens start, ..., stop − 1 in a table by position."""
        if not self.randomize_positions:
            return slice(start, stop)
        return self._places(device)[start:stop]

    def distances(self, queries: int, keys: int, start: int, device: torch.device) -> Tensor:
        """As `indices.distances`, with those drawn in their place: T+S−1 values."""
        distance = distances(queries, keys, start, device)
        if not self.randomize_positions:
            return distance
        return distance.sign() * self._places(device)[distance.abs()]

    def _places(self, device: torch.device) -> Tensor:
        if self.drawn is not None:
            return self.drawn
        longest = self.shape.max_positions
        return torch.arange(longest, device=device) * self.randomize_positions // longest


class BiasByDistance(RandomizedEncoding):
    """Base of the encodings that add a bias by distance to the scores, and nothing else."""

    draws_distances = True

    def bias(self, distance: Tensor) -> Tensor:
        """The bias of N distances j − i, in fp32 or wider: H×N."""
        raise NotImplementedError

    def attention_bias(self, queries: int, keys: int, start: int = 0) -> AttentionBias:
        by_distance = self.bias(self.distances(queries, keys, start, self._device()))
        return AttentionBias(keys, by_distance=by_distance, start=start)

    def _device(self) -> torch.device:
        # Replicas of nn.DataParallel hold their parameters as plain attributes.
        held = chain(self.buffers(), self.parameters(), vars(self).values())
        return next(each.device for each in held if isinstance(each, Tensor))
