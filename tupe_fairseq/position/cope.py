"""Contextual positions (Golovneva et al. 2024, CoPE): a key's position counts tokens that matter.

g_ij = σ(q_i·k_j / √D), p_ij = Σ_{k=j..i} g_ik, equations 3 and 4, cut at the last of the P learned
vectors e; score_ij = q_i·(k_j + e[p_ij]) / √D, equation 6, with e[p] between two vectors
interpolated linearly (equation 5). e is shared by the heads and starts at 0.

The listing in the paper's appendix does not divide q_i·e[p_ij] by √D; the authors' code for
training does, as here. Positions are counted to the left, so CoPE is for decoders.
"""

from typing import Annotated, Any

import torch
from torch import Tensor, nn

from .base import PositionEncoding, Shape, check_at_least, register_position_encoding
from .dtypes import widened
from .layer_terms import LayerTerms


class ContextualTerms(LayerTerms):
    """e of one layer, D×P."""

    def __init__(self, shape: Shape, rows: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(shape.head_dim, rows))

    def content(self, q: Tensor, k: Tensor, x: Tensor, encoding: Any, start: int = 0) -> Tensor:
        # B×H×T×D · B×H×D×S -> B×H×T×S
        gates = (q @ k.mT).to(widened(q.dtype)).sigmoid()
        i = torch.arange(start, start + q.size(2), device=q.device)[:, None]
        gates = gates * (torch.arange(k.size(2), device=q.device) <= i)
        position = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=self.weight.size(1) - 1)
        below = position.floor()
        # B×H×T×D · D×P -> B×H×T×P -> B×H×T×S
        by_row = (q @ self.weight).to(position.dtype)
        # NaN is not an index, and would raise an error for the whole batch.
        ends = (end.nan_to_num().long() for end in (below, position.ceil()))
        low, high = (by_row.gather(-1, end) for end in ends)
        return low + (high - low) * (position - below)


@register_position_encoding("cope")
class ContextualPosition(PositionEncoding):
    """Vectors of each layer; nothing is shared by layers."""

    causal_only = True

    def __init__(
        self,
        shape: Shape,
        *,
        cope_positions: Annotated[int, "number P of contextual positions, each a vector"] = 64,
    ):
        super().__init__(shape)
        check_at_least("--cope-positions", cope_positions, 1)
        self.cope_positions = cope_positions

    def build_layer_terms(self) -> ContextualTerms:
        return ContextualTerms(self.shape, self.cope_positions)
