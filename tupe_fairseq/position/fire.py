"""FIRE (Li et al. 2024): a learned function of the distance relative to the position.

score_ij = x_i W^Q (x_j W^K)ᵀ / √D + MLP( ln(1 + |c·d|) / (ln(1 + |c·max(m, |w|·L)|) + 1e−6) )

with d = |i − j|. m is the later one of the positions i and j: in a decoder that is i, as in the
paper; in an encoder it is our extension, with which the ratio stays below 1 on both sides and
padding changes nothing. c = 0.1 and w = 1 at the start; the MLP has one hidden layer with ReLU and
torch's initialisation. All are learned, for each layer separately. L = 512 as in the paper; code
released with a later paper (DAPE, Zheng et al. 2024) has half of it.

Up to position |w|·L, the term is a table by distance. For longer texts, and in programs for every
length, it is a table by query and key, which takes H·T·S numbers in each layer.
"""

import copy
from typing import Annotated, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..base.tracing import is_exporting
from .base import PositionEncoding, Shape, check_at_least, register_position_encoding
from .bias import AttentionBias
from .dtypes import widened
from .indices import distances, toeplitz

EPSILON = 1e-6
#: Hidden values that are computed at a time for a table by query and key.
HIDDEN_VALUES = 1 << 24


class FireLayer(PositionEncoding):
    """c, w and the MLP of one layer; `width` is that of its hidden layer, `threshold` is L."""

    #: |w|·L where it has been read from the device.
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
        device = self.w.device
        # In fp32, in which the largest distance has neighbours.
        logarithms = self._logarithm(distances(queries, keys, start, device=device))
        threshold = self.threshold * self.w.to(widened(self.w.dtype)).abs()
        longest = max(start + queries, keys)
        reach = threshold if self.reach is None else self.reach
        if not is_exporting() and longest - 1 <= reach:
            ratios = logarithms / self._divisor(threshold)
            return AttentionBias(keys, by_distance=self._mlp(ratios), start=start)
        positions = torch.arange(longest, device=device)
        later = torch.maximum(positions[start : start + queries, None], positions[:keys])
        divisors = self._divisor(torch.maximum(positions.to(threshold.dtype), threshold))[later]
        # 1×T×S -> T×S
        ratios = toeplitz(logarithms[None], keys)[0] / divisors
        return AttentionBias(keys, cells=self._in_blocks(ratios), start=start)

    def _logarithm(self, distance: Tensor) -> Tensor:
        """ln(1 + |c·d|)."""
        c = self.c.to(widened(self.c.dtype))
        return torch.log1p((c * distance).abs())

    def _divisor(self, position: Tensor) -> Tensor:
        """ln(1 + |c·m|) + ε, for positions m that are at least |w|·L."""
        return self._logarithm(position) + EPSILON

    def _in_blocks(self, ratios: Tensor) -> Tensor:
        """The MLP of T×S ratios: H×T×S; block by block, and again in the backward pass."""
        if is_exporting():
            return self._mlp(ratios)
        blocks = ratios.split(max(1, HIDDEN_VALUES // (ratios.size(1) * len(self.hidden_bias))))
        return torch.cat([checkpoint(self._mlp, b, use_reentrant=False) for b in blocks], 1)

    def _mlp(self, ratios: Tensor) -> Tensor:
        """Any shape -> H×that shape."""
        hidden_weight = self.hidden_weight.to(ratios.dtype)
        hidden_bias = self.hidden_bias.to(ratios.dtype)
        weight = self.weight.to(ratios.dtype)
        bias = self.bias.to(ratios.dtype)
        hidden = F.relu(F.linear(ratios.flatten()[:, None], hidden_weight, hidden_bias))
        # H×K · K×N -> H×N
        return torch.addmm(bias[:, None], weight, hidden.t()).view(-1, *ratios.shape)


@register_position_encoding("fire")
class FirePosition(PositionEncoding):
    """One function for each layer."""

    def __init__(
        self,
        shape: Shape,
        *,
        fire_width: Annotated[int, "hidden width of the function of distance"] = 32,
        fire_threshold: Annotated[
            int, "L: up to position w·L, the bias depends on the distance alone; w starts at 1"
        ] = 512,
    ):
        super().__init__(shape)
        check_at_least("--fire-width", fire_width, 1)
        check_at_least("--fire-threshold", fire_threshold, 1)
        self.layers = nn.ModuleList(
            FireLayer(shape, fire_width, fire_threshold) for _ in range(shape.num_layers)
        )

        self.in_pass: list[FireLayer] = []

    def for_pass(
        self, length: int, device: torch.device, padding_mask: Tensor | None = None
    ) -> "FirePosition":
        """Read |w|·L of all layers at once, so that the host waits for the device only once."""
        if is_exporting():
            return self
        view = copy.copy(self)
        view.in_pass = [copy.copy(self.at(layer)) for layer in range(len(self.layers))]
        weights = torch.cat([layer.w.detach().abs() for layer in view.in_pass]).tolist()
        for layer, w in zip(view.in_pass, weights, strict=True):
            layer.reach = w * layer.threshold
        return view

    def at(self, layer: int) -> FireLayer:
        return self.in_pass[layer] if self.in_pass else cast(FireLayer, self.layers[layer])
