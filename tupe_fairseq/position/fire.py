"""FIRE (Li et al. 2024): a learned function of the distance relative to the position.

score_ij = x_i W^Q (x_j W^K)ᵀ / √D + MLP( ln(1 + |c·d|) / (ln(1 + |c·max(m, |w|·L)|) + 1e−6) )

with d = |i − j|. m is the later one of the positions i and j: in a decoder that is i, as in the
paper; in an encoder it is our extension, with which the ratio stays below 1 on both sides and
padding changes nothing. c = 0.1 and w = 1 at the start; the MLP has one hidden layer with ReLU and
torch's initialisation. All are learned, for each layer separately. L = 512 as in the paper; code
released with a later paper (DAPE, Zheng et al. 2024) has half of it.

Up to position |w|·L, the term is a table by distance. For longer texts, and in programs for every
length, it is a table of all cells, which takes H·T·S numbers in each layer.
"""

import copy
from typing import Annotated, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .base import PositionEncoding, Shape, check_at_least, register_position_encoding
from .bias import AttentionBias
from .indices import distances, toeplitz
from .tables import widened

EPSILON = 1e-6
#: Hidden values that are computed at a time for a table of all cells.
HIDDEN_VALUES = 1 << 24


class FireLayer(PositionEncoding):
    """c, w and the MLP of one layer.

    Args:
        shape: of the model.
        width: of the hidden layer.
        threshold: L.
    """

    #: Up to which position the term is a table by distance; None: to be read from w.
    reach: float | None = None

    def __init__(self, shape: Shape, width: int, threshold: int):
        super().__init__(shape)
        self.threshold = threshold
        self.c = nn.Parameter(torch.full((1,), 0.1))
        self.w = nn.Parameter(torch.ones(1))
        # Not nn.Linear, which fairseq's RoBERTa would initialise with nearly zeros.
        self.hidden_weight = nn.Parameter(torch.empty(width, 1).uniform_(-1, 1))
        self.hidden_bias = nn.Parameter(torch.empty(width).uniform_(-1, 1))
        bound = width**-0.5
        self.weight = nn.Parameter(torch.empty(shape.num_heads, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(shape.num_heads).uniform_(-bound, bound))

    def attention_bias(self, queries: int, keys: int, start: int = 0) -> AttentionBias:
        last = max(start + queries, keys) - 1
        distance = distances(queries, keys, start, device=self.w.device).abs()
        # In fp32, in which the largest distance has neighbours.
        logarithms = self._logarithm(distance)
        if not torch.compiler.is_exporting() and last <= self._known_reach():
            ratios = logarithms / self._divisor(torch.zeros_like(distance[:1]))
            return AttentionBias(keys, by_distance=self._mlp(ratios), start=start)
        cells = self._cells(logarithms, torch.arange(last + 1, device=self.w.device), keys, start)
        return AttentionBias(keys, cells=cells, start=start)

    def _known_reach(self) -> float:
        """Up to which position the term is a table by distance."""
        return self.read_reach([self])[0] if self.reach is None else self.reach

    @staticmethod
    def read_reach(layers: "list[FireLayer]") -> list[float]:
        """|w|·L of each layer; one transfer from the device."""
        reach = torch.cat([layer.threshold * layer.w.detach().abs() for layer in layers])
        return reach.tolist()

    def _cells(self, logarithms: Tensor, positions: Tensor, keys: int, start: int) -> Tensor:
        """The term by cell, H×T×S; block by block, and again in the backward pass."""
        divisor = self._divisor(positions)
        # 1×T×S -> T×S
        of_cells = toeplitz(logarithms[None], keys)[0]
        rows = positions[start : start + of_cells.size(0), None]
        ratios = of_cells / divisor[torch.maximum(rows, positions[:keys])]
        if torch.compiler.is_exporting():
            return self._mlp(ratios)
        step = max(1, HIDDEN_VALUES // (keys * len(self.hidden_bias)))
        blocks = ratios.split(step)
        if torch.is_grad_enabled():
            return torch.cat([checkpoint(self._mlp, b, use_reentrant=False) for b in blocks], 1)
        return torch.cat([self._mlp(block) for block in blocks], 1)

    def _logarithm(self, distance: Tensor) -> Tensor:
        """ln(1 + |c·d|)."""
        c = self.c.to(widened(self.c.dtype))
        return torch.log1p((c * distance).abs())

    def _divisor(self, position: Tensor) -> Tensor:
        """ln(1 + |c·max(m, |w|·L)|) + ε."""
        threshold = self.threshold * self.w.to(widened(self.w.dtype)).abs()
        return self._logarithm(torch.maximum(position.to(threshold.dtype), threshold)) + EPSILON

    def _mlp(self, ratios: Tensor) -> Tensor:
        """Any shape -> H×that shape."""
        hidden_weight, hidden_bias, weight, bias = (
            p.to(ratios.dtype)
            for p in (self.hidden_weight, self.hidden_bias, self.weight, self.bias)
        )
        hidden = F.relu(F.linear(ratios.flatten()[:, None], hidden_weight, hidden_bias))
        # H×K · K×N -> H×N
        return torch.addmm(bias[:, None], weight, hidden.t()).view(-1, *ratios.shape)


@register_position_encoding("fire")
class FirePosition(PositionEncoding):
    """One function for each layer."""

    enters = "score"
    paper = "Li 2024"
    in_decoder = "causal, as in the paper"

    def __init__(
        self,
        shape: Shape,
        *,
        fire_width: Annotated[int, "hidden width of the function of distance"] = 32,
        fire_threshold: Annotated[int, "L: longer texts are rescaled, relative to w = 1"] = 512,
    ):
        super().__init__(shape)
        check_at_least("--fire-width", fire_width, 1)
        check_at_least("--fire-threshold", fire_threshold, 1)
        made = [FireLayer(shape, fire_width, fire_threshold) for _ in range(shape.num_layers)]
        self.layers = nn.ModuleList(made)
        #: The layers in one forward pass, which know their reach.
        self.in_pass: tuple[FireLayer, ...] | None = None

    def for_pass(self, length: int, device: torch.device) -> "FirePosition":
        """Read the thresholds of all layers at once, so that the host waits only once."""
        if torch.compiler.is_exporting():
            return self
        view, layers = (
            copy.copy(self),
            [copy.copy(self._layer(i)) for i in range(len(self.layers))],
        )
        for layer, reach in zip(layers, FireLayer.read_reach(layers), strict=True):
            layer.reach = reach
        view.in_pass = tuple(layers)
        return view

    def at(self, layer: int) -> PositionEncoding:
        return self._layer(layer) if self.in_pass is None else self.in_pass[layer]

    def _layer(self, index: int) -> FireLayer:
        return cast(FireLayer, self.layers[index])
