"""Self-attention of a decoder: all words at once in training, word by word in generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..position import PositionEncoding
from ..position.tables import widened
from . import Layout, SharedAttention, TupeMultiheadAttention
from .multihead_attention import is_plain


@dataclass
class LayerCache:
    """What one layer keeps from one word to the next.

    Attributes:
        keys: of the words so far, rotated, B×H×S×D; None before the first.
        values: as keys.
        source: keys and values of the source sentences.
        joint: weight and bias of the three projections side by side.
        projected: what the layer's terms make of positions alone.
    """

    keys: Tensor | None = None
    values: Tensor | None = None
    source: tuple[Tensor, Tensor] | None = None
    joint: tuple[Tensor, Tensor] | None = None
    projected: Any = None


@dataclass(frozen=True)
class Step:
    """One word of each hypothesis, in incremental decoding; what all layers share.

    Attributes:
        encoding: the position encoding.
        start: position of the word.
        bias: content-free score of it and the words before it, H×1×S; or None.
        layout: B×1.
    """

    encoding: PositionEncoding
    start: int
    bias: Tensor | None
    layout: Layout


class CausalAttention(TupeMultiheadAttention):
    """Attention to the words before and the word itself."""

    def forward(
        self, x: Tensor, shared: SharedAttention | Step, cache: LayerCache | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Attend.

        Args:
            x: B×T×C; with a cache, T is 1.
            shared: what `share_attention` prepared, or with a cache the step.
            cache: of this layer, to which the word is added.

        Returns:
            The output, B×T×C, and None in place of weights.
        """
        if cache is None:
            return super().forward(x, shared)
        q, k, v = shared.encoding.rotate(
            *self._project_word(x, shared, cache), shared.start, shared.start
        )
        if cache.keys is not None:
            k, v = torch.cat((cache.keys, k), 2), torch.cat((cache.values, v), 2)
        cache.keys, cache.values = k, v
        # B×H×1×D -> B×1×C
        out = self._attend(q, k, v, shared, cache).transpose(1, 2).flatten(2)
        return self.out_proj(out), None

    def _project_word(self, x: Tensor, step: Step, cache: LayerCache) -> tuple[Tensor, ...]:
        if not all(map(is_plain, (self.q_proj, self.k_proj, self.v_proj))):
            return tuple(self._project(x, step))
        if cache.joint is None:
            cache.joint = self._joint()
        # B×1×3C -> 3 of B×H×1×D
        qkv = F.linear(x, *cache.joint).unflatten(-1, (3, self.num_heads, self.head_dim))
        return tuple(part.transpose(1, 2) for part in qkv.unbind(2))

    def _attend(self, q, k, v, step: Step, cache: LayerCache) -> Tensor:
        terms, bias = self.layer_terms, step.bias
        if terms is None:
            mask = None if bias is None else bias.to(q.dtype)[None]
            return F.scaled_dot_product_attention(q, k, v, mask, scale=1.0)
        # B×H×1×D · B×H×D×S -> B×H×1×S
        scores = q @ k.mT
        if terms.adds_score:
            scores = scores + terms.score(q, k, step.encoding, step.start, cache.projected)
        if bias is not None:
            scores = scores + bias
        weights = scores.softmax(-1, dtype=widened(scores.dtype)).type_as(v)
        out = weights @ v
        return out + terms.value(weights, step.start) if terms.adds_value else out
