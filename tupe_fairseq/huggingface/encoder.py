"""The encoder with what transformers needs: checkpointing, hidden states, attention weights."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from ..attention import Prepared
from ..attention.eager import Eager
from ..transformer.layer import TransformerLayer
from ..transformer.padding_shift import PaddingShift
from ..transformer.stack import TransformerStack
from .configuration import TupeConfig


class TupeLayer(GradientCheckpointingLayer, TransformerLayer):
    """`TransformerLayer` that transformers can recompute in the backward pass."""


class HuggingFaceStack(TransformerStack):
    """`TransformerStack` of such layers."""

    layer_class = TupeLayer

    def __init__(self, *args: Any):
        super().__init__(*args)
        #: After the embeddings, in models that fairseq has trained with --quant-noise-pq.
        self.quant_noise: nn.Module | None = None

    def normalise_and_drop(self, x: Tensor) -> Tensor:
        x = super().normalise_and_drop(x)
        return x if self.quant_noise is None else self.quant_noise(x)


class Record:
    """An observer of `TransformerStack.run` that collects what the layers read.

    The layers go on with what was collected, so gradients reach it.

    Args:
        shift: how padding was moved to the end of each row.
        config: of the model; it decides where an argument is None.
        states: whether to collect the input of each layer.
        weights: whether to collect attention weights; the backend is then `eager`.
    """

    def __init__(
        self, shift: PaddingShift, config: TupeConfig, states: bool | None, weights: bool | None
    ):
        self.shift = shift
        self.wants_states = bool(config.output_hidden_states if states is None else states)
        self.wants_weights = bool(config.output_attentions if weights is None else weights)
        # With padding where the user has it.
        self._states: list[Tensor] = []
        self._weights: list[Tensor] = []

    def __call__(self, x: Tensor, prepared: Prepared) -> tuple[Tensor, Prepared]:
        """The input of a layer and what it shares with others, as the layer gets them."""
        if self.wants_states:
            x = prepared.layout.pack(self._add_state(prepared.layout.unpack(x)))
        if self.wants_weights:
            prepared = replace(prepared, backend=_Recorded(self._add_weights))
        return x, prepared

    def hidden_states(self, last: Tensor) -> tuple[Tensor, ...] | None:
        """The input of each layer, and `last`, which includes the final LayerNorm; B×T×C each.

        None if they were not collected.
        """
        if not self.wants_states:
            return None
        return (*self._states, last)

    def attentions(self) -> tuple[Tensor, ...] | None:
        """The attention weights of each layer, B×H×T×S, or None if they were not collected."""
        return tuple(self._weights) if self.wants_weights else None

    def _add_state(self, x: Tensor) -> Tensor:
        self._states.append(self.shift.back(x))
        return self.shift.to_end(self._states[-1])

    def _add_weights(self, weights: Tensor) -> Tensor:
        self._weights.append(self.shift.weights_back(weights))
        return self.shift.weights_to_end(self._weights[-1])


class _Recorded(Eager):
    """`eager` that shows its weights to a function, and goes on with what this returns."""

    def __init__(self, record: Callable[[Tensor], Tensor]):
        self._record = record

    def weights(self, scores: Tensor, dtype: torch.dtype) -> Tensor:
        return self._record(super().weights(scores, dtype))
