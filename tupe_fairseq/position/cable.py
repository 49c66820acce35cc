"""Context-aware biases (Veisi et al. 2025, CABLE): each token adds to the distances across it.

score_ij = q_i·k_j / √D + c_i − c_j with c_i = −Σ_{l≤i} softplus(w·x_l + b) for each head, x the
layer's input. A key is penalised by the tokens after it, up to the query. Because softplus(z) =
−ln σ(−z), this is FoX (fox.py) with w and b negated, and a product of vectors in the same way.

The code released with the paper is causal and does not divide q_i·k_j by √D. In an encoder, the
term is −|c_i − c_j|, which is ours: the same penalty on both sides. It is no product of vectors.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from .base import PositionEncoding, Shape, register_position_encoding
from .fox import ForgetGates, Gates


class Penalties(ForgetGates):
    """w and b of one layer, in a decoder."""

    def logs(self, gates: Tensor) -> Tensor:
        return -F.softplus(gates)


class SymmetricPenalties(Gates):
    """w and b of one layer, in an encoder."""

    def __init__(self, shape: Shape):
        super().__init__(shape, sides=1)

    def logs(self, gates: Tensor) -> Tensor:
        return -F.softplus(gates)

    def content(self, q: Tensor, k: Tensor, x: Tensor, encoding: Any, start: int = 0) -> Tensor:
        sums = self.sums(x)
        # B×H×T×1 − B×H×1×T
        return -(sums[..., None] - sums[:, :, None]).abs()


@register_position_encoding("cable")
class CablePosition(PositionEncoding):
    """Penalties of each layer; nothing is shared by layers."""

    #: c_i − c_j is positive for later keys.
    hidden_score = -1e9

    def build_layer_terms(self) -> Gates:
        terms = SymmetricPenalties if self.shape.bidirectional else Penalties
        return terms(self.shape)
