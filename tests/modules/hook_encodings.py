"""Encodings that differ by layer."""

from dataclasses import replace

import torch
from torch import nn

from tupe_fairseq import PositionEncoding
from tupe_fairseq.position import AttentionBias
from tupe_fairseq.position.indices import distances
from tupe_fairseq.position.rope import RotaryPosition

WINDOW, THETAS = 2, (1000.0, 10.0)


class LayerBias(PositionEncoding):
    """The content-free score of one layer: −(a |i − j| + b (j − i)) per head."""

    def __init__(self, shape):
        super().__init__(shape)
        self.slopes = nn.Parameter(torch.empty(shape.num_heads, 2))

    def attention_bias(self, queries, keys, start=0):
        d = distances(queries, keys, start)
        bias = -torch.stack((d.abs(), d)).to(self.slopes.dtype)
        return AttentionBias(keys, by_distance=self.slopes @ bias, start=start)


class BiasPerLayer(PositionEncoding):
    """Scores that differ by layer, with parameters of their own, as FIRE's."""

    def __init__(self, shape):
        super().__init__(shape)
        self.by_layer = nn.ModuleList(LayerBias(shape) for _ in range(shape.num_layers))

    def at(self, layer):
        return self.by_layer[layer]


class LocalGlobal(PositionEncoding):
    """Windows and rotations that differ by layer, as ModernBERT's: every second layer is local."""

    def __init__(self, shape):
        super().__init__(replace(shape, window=WINDOW, global_every=2))
        self.everywhere, self.nearby = (RotaryPosition(shape, rope_theta=t) for t in THETAS)

    def at(self, layer):
        return self.nearby if layer % 2 else self.everywhere
