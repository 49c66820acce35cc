"""Encodings that are a bias by distance."""

from itertools import chain

import torch
from torch import Tensor

from .base import PositionEncoding
from .bias import AttentionBias
from .indices import distances


class BiasByDistance(PositionEncoding):
    """Base of the encodings that add a bias by distance to the scores, and nothing else."""

    def bias(self, distance: Tensor) -> Tensor:
        """The bias of N distances j − i, in fp32 or wider: H×N."""
        raise NotImplementedError

    def attention_bias(self, queries: int, keys: int, start: int = 0) -> AttentionBias:
        by_distance = self.bias(distances(queries, keys, start, self._device()))
        return AttentionBias(keys, by_distance=by_distance, start=start)

    def _device(self) -> torch.device:
        # Replicas of nn.DataParallel hold their parameters as plain attributes.
        held = chain(self.buffers(), self.parameters(), vars(self).values())
        return next(each.device for each in held if isinstance(each, Tensor))
