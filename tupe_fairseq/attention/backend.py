"""What a way of computing attention must offer, and the choice between the ways.

A backend is a file of this folder with one subclass of `Backend`. It works in two steps: `prepare`
once per forward pass, for what all layers share; `attend` in each layer.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import UsageError
from ..position.base import LayerTerms, PositionEncoding
from ..position.score import PositionalScore, hide_later_keys
from ..registry import Registry
from .layout import Layout

logger = logging.getLogger(__name__)

ATTENTION_BACKENDS = Registry("--attention-backend", special=("auto",))


class Backend:
    """Computes softmax(q kᵀ + positional terms) v, exactly."""

    name: str
    #: Whether torch.compile sees through it.
    compiles = True
    #: Whether it adds what a score has by distance, which is how later keys are hidden.
    causal = False

    def speed(self, device: str) -> float:
        """`auto` takes the backend that is fastest on this type of device and refuses nothing."""
        return 0

    def refuses(
        self, encoding: PositionEncoding, terms: LayerTerms | None, need_weights: bool
    ) -> str | None:
        """Why this backend cannot serve an encoding with these terms of a layer, or None."""
        return None

    def lacks(self, device: str) -> str | None:
        """Why this backend cannot run here on this type of device, or None."""
        return None

    def prepare(
        self, score: PositionalScore | None, layout: Layout, heads: int, dtype: torch.dtype
    ) -> Any:
        """Bring what all layers share into the form that `attend` reads.

        Args:
            score: content-free term, or None.
            layout: the words of the batch.
            heads: H.
            dtype: of the queries to come.
        """
        raise NotImplementedError

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, shared: SharedAttention, layer: torch.nn.Module
    ) -> tuple[Tensor, Tensor | None]:
        """Attend in one layer.

        Args:
            q: queries, already scaled, B×H×T×D.
            k: keys, B×H×S×D.
            v: values, B×H×S×D.
            shared: what `prepare` made, and whether weights are wanted.
            layer: the attention that asks; its `layer_terms` and `dropout` are read.

        Returns:
            The output, B×H×T×D, and the attention weights, B×H×T×S, where wanted (else None).
        """
        raise NotImplementedError


@dataclass(frozen=True)
class SharedAttention:
    """What all layers of one forward pass share; made by `share_attention`, read by each layer."""

    backend: Backend
    encoding: PositionEncoding
    layout: Layout
    prepared: Any
    need_weights: bool = False


def share_attention(
    encoding: PositionEncoding,
    x: Tensor,
    padding_mask: Tensor | None = None,
    *,
    layout: Layout | None = None,
    layer_terms: LayerTerms | None = None,
    backend: str = "auto",
    need_weights: bool = False,
    compiled: bool = False,
    causal: bool = False,
) -> SharedAttention:
    """Compute the positional term of one forward pass and choose who computes attention.

    Args:
        encoding: the position encoding.
        x: input of the layers, B×T×C, or N×C with a layout.
        padding_mask: B×T, True at padding, or None; not read with a layout.
        layout: the words of the batch where padding has been taken out of x.
        layer_terms: the encoding's terms in any one of the layers, or None.
        backend: a registered name, or "auto" for the fastest that can.
        need_weights: whether the layers return their attention weights.
        compiled: whether the layers are compiled.
        causal: whether queries see no keys to their right.

    Raises:
        UsageError: unknown backend, or one that cannot serve this encoding or run here.
    """
    if layout is None:
        layout = Layout(x.size(0), x.size(1), padding_mask)
    device = x.device.type
    chosen = choose_backend(backend, encoding, layer_terms, need_weights, device, compiled, causal)
    if reason := chosen.lacks(device):
        raise _refusal(backend, reason)
    _log_choice(backend, chosen.name, type(encoding).__name__, device)
    dtype = _dtype_of_queries(x)
    # Made once and used in every layer, so not worth rounding.
    with torch.autocast(device, enabled=False):
        score = encoding.score(layout.length, layout.length)
        if causal:
            score = hide_later_keys(score, encoding.shape.num_heads, layout.length, x.device)
        prepared = chosen.prepare(score, layout, encoding.shape.num_heads, dtype)
    return SharedAttention(chosen, encoding, layout, prepared, need_weights)


def choose_backend(
    name: str,
    encoding: PositionEncoding,
    terms: LayerTerms | None = None,
    need_weights: bool = False,
    device: str = "cpu",
    compiled: bool = False,
    causal: bool = False,
) -> Backend:
    """The backend of that name, or for "auto" the fastest on this device that refuses nothing."""

    def reason_against(backend: Backend) -> str | None:
        if compiled and not backend.compiles:
            return "torch.compile (--compile-layers) cannot see through it"
        if causal and not backend.causal:
            return "it cannot hide later words from a decoder"
        return backend.refuses(encoding, terms, need_weights)

    if name == "auto":
        backends = [backend for _, backend in ATTENTION_BACKENDS.items()]
        able = (b for b in backends if not reason_against(b))
        return max(able, key=lambda b: b.speed(device))
    chosen = ATTENTION_BACKENDS[name]
    if reason := reason_against(chosen):
        raise _refusal(name, reason)
    return chosen


def _refusal(name: str, reason: str) -> UsageError:
    return UsageError(f"--attention-backend is {name!r}, but {reason}; use auto or eager.")


def _dtype_of_queries(x: Tensor) -> torch.dtype:
    """Autocast turns fp32 input into half-precision queries."""
    if torch.is_autocast_enabled(x.device.type):
        return torch.get_autocast_dtype(x.device.type)
    return x.dtype


_logged: set[tuple[str, ...]] = set()


def _log_choice(*choice: str) -> None:
    if choice not in _logged:
        _logged.add(choice)
        asked, chosen, encoding, device = choice
        logger.info(f"attention backend {chosen} ({asked}) for {encoding} on {device}")
