"""Which backend computes attention, and what all layers of a forward pass share."""

import functools
import logging
from collections.abc import Collection

import torch
from torch import Tensor

from ..errors import BackendError
from ..position import LayerTerms, PositionEncoding
from ..position.bias import AttentionBias
from ..position.indices import distances
from ..position.tables import without_autocast
from .backend import (
    ATTENTION_BACKENDS,
    Backend,
    Feature,
    SharedAttention,
    required_features,
)
from .layout import Layout

logger = logging.getLogger(__name__)

#: The backends that "auto" tries on each type of device, in this order. `eager`, the last,
#: supports all features.
AUTO = {"cpu": ("blocked", "sdpa", "eager"), "cuda": ("flash", "sdpa", "eager")}
AUTO_ELSEWHERE = ("sdpa", "eager")


def share_attention(
    encoding: PositionEncoding,
    x: Tensor,
    layout: Layout | None = None,
    *,
    layer_terms: LayerTerms | None = None,
    window: int | None = None,
    backend: str = "auto",
    compiled: bool = False,
    causal: bool = False,
) -> SharedAttention:
    """Choose a backend and compute the content-free positional term of one forward pass.

    Args:
        encoding: the position encoding.
        x: input of the layers, B×T×C, or N×C where the layout has taken padding out.
        layout: the tokens of the batch, or None for B×T tokens without padding.
        layer_terms: the encoding's terms of one of the layers, or None.
        window: largest distance at which tokens attend to each other, or None.
        backend: a registered name, or "auto" for the first in `AUTO` that supports the encoding.
        compiled: whether the layers are compiled.
        causal: whether later tokens are hidden.

    Raises:
        BackendError: the backend is unknown, does not support this encoding, or cannot run here.
    """
    if layout is None:
        layout = Layout(x.size(0), x.size(1))
    features = required_features(
        encoding,
        layer_terms,
        window=window,
        compiled=compiled or torch.compiler.is_compiling(),
        decoder=causal,
    )
    device = x.device.type
    chosen = choose_backend(backend, features, device)
    if reason := chosen.unavailable(device):
        raise _unusable(backend, reason)
    if not torch.compiler.is_compiling():
        _log_choice(backend, chosen.name, type(encoding).__name__, device)
    bias = positional_bias(encoding, layout.length, x.device, causal, window)
    with without_autocast(device):
        heads = encoding.shape.num_heads
        prepared = chosen.prepare(bias, layout, heads, dtype_of_queries(x))
    temperature = encoding.shape.temperature(0, layout.length, window, x.device)
    return SharedAttention(chosen, layout, prepared, encoding, temperature=temperature)


def choose_backend(name: str, features: Collection[Feature], device: str = "cpu") -> Backend:
    """The backend of that name, or for "auto" the first in `AUTO` with all features.

    Raises:
        BackendError: the backend is unknown, or does not support these features.
    """
    if name == "auto":
        candidates = (ATTENTION_BACKENDS[each] for each in AUTO.get(device, AUTO_ELSEWHERE))
        return next(backend for backend in candidates if not backend.unsupported(features))
    chosen = ATTENTION_BACKENDS[name]
    if reason := chosen.unsupported(features):
        raise _unusable(name, reason)
    return chosen


def _unusable(name: str, reason: str) -> BackendError:
    return BackendError(f"--attention-backend is {name!r}, but {reason}; use auto or eager.")


@functools.cache
def _log_choice(asked: str, chosen: str, encoding: str, device: str) -> None:
    """Log each choice once."""
    logger.info(f"attention backend {chosen} ({asked}) for {encoding} on {device}")


def positional_bias(
    encoding: PositionEncoding,
    length: int,
    device: torch.device,
    causal: bool = False,
    window: int | None = None,
) -> AttentionBias | None:
    """The positional term of T tokens, with keys hidden by their distance; without autocast.

    It is computed once for all layers, so its rounding error would be in all of them. With [CLS]
    untied, the window is left to `AttentionBias.rows`: the term cancels what is by distance at
    position 0, where numbers as large as `hidden_score` would leave a rounding error.

    The arguments are those of `share_attention`; `length` is T.
    """
    with without_autocast(device.type):
        bias = encoding.attention_bias(length, length)
        temperature = encoding.shape.temperature(0, length, window, device)
        if bias is not None and temperature is not None:
            bias = bias.times(temperature)
        if not causal and window is None:
            return bias
        farthest = length - 1 if window is None else min(window, length - 1)
        visible = (-farthest, 0 if causal else farthest)
        distance = distances(length, length, device=device)
        hidden = distance > 0 if causal else torch.zeros_like(distance, dtype=torch.bool)
        if window is not None and not encoding.untie_cls:
            hidden = hidden | (distance.abs() > window)
        mask = torch.zeros_like(distance, dtype=torch.float32)
        mask = mask.masked_fill(hidden, encoding.hidden_score).expand(encoding.shape.num_heads, -1)
        in_rows = window if encoding.untie_cls else None
        return (bias or AttentionBias(length)).hide(mask, visible, in_rows)


def dtype_of_queries(x: Tensor) -> torch.dtype:
    """The dtype of queries projected from x: autocast turns fp32 into half precision."""
    device = x.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return x.dtype
