"""Encodings that differ by layer or read the layer's input."""

import torch
import torch.nn.functional as F
from torch import nn

from tupe_fairseq import PositionEncoding
from tupe_fairseq.position import AttentionBias, LayerTerms
from tupe_fairseq.position.indices import distances
from tupe_fairseq.position.rope import RotaryPosition
from tupe_fairseq.position.tables import widened

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
        super().__init__(shape)
        self.everywhere, self.nearby = (RotaryPosition(shape, rope_theta=t) for t in THETAS)

    def at(self, layer):
        return self.nearby if layer % 2 else self.everywhere

    def window_at(self, layer):
        return WINDOW if layer % 2 else None


class ForgetGate(LayerTerms):
    """ln f_l = ln σ(w·x_l + b); score_ij += F_i − F_j, F the running sum of ln f."""

    def __init__(self, shape):
        super().__init__()
        self.gate = nn.Linear(shape.embed_dim, shape.num_heads)

    def vectors(self, x, carried=None):
        # B×T×H -> B×H×T×1
        logs = F.logsigmoid(self.gate(x).to(widened(x.dtype)))
        sums = logs.cumsum(1).transpose(1, 2)[..., None]
        if carried is not None:
            sums = sums + carried
        ones = torch.ones_like(sums)
        return torch.cat((sums, ones), -1), torch.cat((ones, -sums), -1), sums[:, :, -1:]


class Forgetting(PositionEncoding):
    """A gate computed from the layer's input, as the forgetting transformer's."""

    def build_layer_terms(self):
        return ForgetGate(self.shape)
