"""The encoder with what transformers asks of it: checkpoints, hidden states, weights."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from transformers.modeling_layers import GradientCheckpointingLayer

from ..attention import SharedAttention
from ..attention.eager import Eager
from ..modules.encoder import Encoder
from ..modules.layer import TransformerLayer
from ..modules.padding_shift import PaddingShift


class TupeLayer(GradientCheckpointingLayer, TransformerLayer):
    """`TransformerLayer` that transformers can recompute in the backward pass."""


class TupeEncoder(Encoder):
    """`Encoder` of such layers."""

    layer_class = TupeLayer


class Record:
    """An observer of `Encoder.run` that collects what the layers read.

    The layers go on with what was collected, so gradients reach it.

    Args:
        shift: how padding was moved to the end of each row.
        states: whether to collect the input of each layer.
        weights: whether to collect attention weights; the backend is then `eager`.
    """

    def __init__(self, shift: PaddingShift | None, states: bool, weights: bool):
        self.shift, self.wants_states, self.wants_weights = shift, states, weights
        #: B×T×C each, with padding where the user has it.
        self.states: list[Tensor] = []
        #: B×H×T×S each, likewise.
        self.weights: list[Tensor] = []

    def __call__(self, x: Tensor, shared: SharedAttention) -> tuple[Tensor, SharedAttention]:
        """The input of a layer and its shared attention, as the layer gets them."""
        if self.wants_states:
            x = shared.layout.pack(self._add_state(shared.layout.unpack(x)))
        if self.wants_weights:
            shared = replace(shared, backend=_Recorded(self._add_weights))
        return x, shared

    def by_layer(self, num_layers: int) -> list[Tensor]:
        """The states of each layer, where tokens were computed one after the other."""
        parts = [self.states[index::num_layers] for index in range(num_layers)]
        return [part[0] if len(part) == 1 else torch.cat(part, 1) for part in parts]

    def _add_state(self, x: Tensor) -> Tensor:
        if self.shift is None:
            self.states.append(x)
            return x
        self.states.append(self.shift.back(x))
        return self.shift.to_end(self.states[-1])

    def _add_weights(self, weights: Tensor) -> Tensor:
        if self.shift is None:
            self.weights.append(weights)
            return weights
        self.weights.append(self.shift.weights_back(weights))
        return self.shift.weights_to_end(self.weights[-1])


class _Recorded(Eager):
    """`eager` that shows its weights to a function, and goes on with what this returns."""

    def __init__(self, record: Callable[[Tensor], Tensor]):
        self._record = record

    def weights(self, scores: Tensor, dtype: torch.dtype) -> Tensor:
        return self._record(super().weights(scores, dtype))
