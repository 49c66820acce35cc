"""The forgetting transformer (Lin et al. 2025, FoX): keys are forgotten by gates of the tokens.

score_ij = q_i·k_j / √D + Σ_{l=j+1..i} ln f_l with f_l = σ(w·x_l + b) for each head, x the layer's
input. With the running sum F_i = Σ_{l≤i} ln f_l the term is F_i − F_j, the product of (F_i, 1) and
(1, −F_j), which are appended to queries and keys.

The paper is causal. In an encoder, keys on the right have gates g of their own and get
Σ_{l=i+1..j} ln g_l, as in x-transformers; this is no product of vectors.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .base import PositionEncoding, Shape, register_position_encoding
from .dtypes import widened
from .layer_terms import LayerTerms


class Gates(LayerTerms):
    """w and b of one layer."""

    def __init__(self, shape: Shape, sides: int):
        super().__init__()
        self.gate = nn.Linear(shape.embed_dim, sides * shape.num_heads)
        nn.init.normal_(self.gate.weight, std=0.02)
        nn.init.zeros_(self.gate.bias)

    def logs(self, gates: Tensor) -> Tensor:
        """What the values of gates add to the running sum."""
        return F.logsigmoid(gates)

    def sums(self, x: Tensor) -> Tensor:
        """F, B×H×T in fp32 or wider, from B×T×C."""
        logs = self.logs(self.gate(x))
        return logs.to(widened(logs.dtype)).cumsum(1).transpose(1, 2)


class ForgetGates(Gates):
    """w and b of one layer, for keys on the left."""

    def __init__(self, shape: Shape):
        super().__init__(shape, sides=1)

    def vectors(
        self, x: Tensor, carried: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        sums = self.sums(x)[..., None]
        if carried is not None:
            sums = sums + carried
        ones = torch.ones_like(sums)
        return torch.cat((sums, ones), -1), torch.cat((ones, -sums), -1), sums[:, :, -1:]


class TwoSidedGates(Gates):
    """w and b of one layer, for keys on both sides."""

    def __init__(self, shape: Shape):
        super().__init__(shape, sides=2)

    def content(self, q: Tensor, k: Tensor, x: Tensor, encoding: Any, start: int = 0) -> Tensor:
        left, right = self.sums(x).chunk(2, 1)
        positions = torch.arange(k.size(2), device=k.device)
        is_left = positions <= positions[:, None]
        # B×H×T×1 − B×H×1×T
        left = left[..., None] - left[:, :, None]
        return torch.where(is_left, left, right[:, :, None] - right[..., None])


@register_position_encoding("fox")
class ForgettingPosition(PositionEncoding):
    """Gates of each layer; nothing is shared by layers."""

    #: F_i − F_j is positive for later keys.
    hidden_score = -1e9

    def build_layer_terms(self) -> Gates:
        return TwoSidedGates(self.shape) if self.shape.bidirectional else ForgetGates(self.shape)
