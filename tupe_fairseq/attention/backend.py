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
from ..position.score import PositionalScore
from ..registry import Registry

logger = logging.getLogger(__name__)

ATTENTION_BACKENDS = Registry("--attention-backend", special=("auto",))


class Backend:
    """Computes softmax(q kᵀ + positional terms) v, exactly.

    Attributes:
        speed: `auto` takes the backend of the highest speed that refuses nothing.
    """

    name: str
    speed: int

    def refuses(self, terms: LayerTerms | None, need_weights: bool) -> str | None:
        """Why this backend cannot serve these terms of a layer, or None if it can."""
        return None

    def prepare(
        self, score: PositionalScore | None, padding_mask: Tensor | None, dtype: torch.dtype
    ) -> Any:
        """Bring what all layers share into the form that `attend` reads.

        Args:
            score: content-free term, or None.
            padding_mask: B×S, True at padding, or None where there is none.
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
    prepared: Any
    need_weights: bool = False


def share_attention(
    encoding: PositionEncoding,
    x: Tensor,
    padding_mask: Tensor | None = None,
    *,
    layer_terms: LayerTerms | None = None,
    backend: str = "auto",
    need_weights: bool = False,
) -> SharedAttention:
    """Compute the positional term of one forward pass and choose who computes attention.

    Args:
        encoding: the position encoding.
        x: input of the layers, B×T×C.
        padding_mask: B×T, True at padding, or None.
        layer_terms: the encoding's terms in any one of the layers, or None.
        backend: a registered name, or "auto" for the fastest that can.
        need_weights: whether the layers return their attention weights.

    Raises:
        UsageError: unknown backend, or one that cannot serve this encoding.
    """
    chosen = choose_backend(backend, layer_terms, need_weights)
    _log_choice(backend, chosen.name, type(encoding).__name__, x.device.type)
    dtype = _dtype_of_queries(x)
    # Made once and used in every layer, so not worth rounding.
    with torch.autocast(x.device.type, enabled=False):
        score = encoding.score(x.size(1), x.size(1))
        prepared = chosen.prepare(score, padding_mask, dtype)
    return SharedAttention(chosen, encoding, prepared, need_weights)


def choose_backend(name: str, terms: LayerTerms | None, need_weights: bool) -> Backend:
    """The backend of that name, or for "auto" the fastest that refuses nothing."""
    if name == "auto":
        able = (b for _, b in ATTENTION_BACKENDS.items() if not b.refuses(terms, need_weights))
        return max(able, key=lambda b: b.speed)
    chosen = ATTENTION_BACKENDS[name]
    if reason := chosen.refuses(terms, need_weights):
        raise UsageError(f"--attention-backend is {name!r}, but {reason}; use auto or eager.")
    return chosen


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
