"""Plain attention: scores, softmax, weights. The reference for the other backends."""

import torch
from torch import Tensor

from ..kernels.dropout import dropout as drop
from ..position.bias import AttentionBias
from ..position.dtypes import widened
from ..position.relative import RelativeVectors
from .backend import ATTENTION_BACKENDS, Backend, Feature, Inputs, Prepared
from .layout import Layout


class Eager(Backend):
    """Supports every encoding, and can return the attention weights."""

    name = "eager"
    supports = frozenset(Feature)

    def prepare(
        self, bias: AttentionBias | None, layout: Layout, heads: int, dtype: torch.dtype
    ) -> Inputs:
        mask = layout.padding_mask
        # B×S -> B×1×1×S
        padding = None if mask is None else mask[:, None, None, :]
        return Inputs(None if bias is None else bias.dense(), padding)

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        prepared: Prepared,
        p: float,
        relative: RelativeVectors | None = None,
    ) -> Tensor:
        return self.attend_with_weights(q, k, v, prepared, p, relative)[0]

    def attend_with_weights(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        prepared: Prepared,
        p: float,
        relative: RelativeVectors | None = None,
    ) -> tuple[Tensor, Tensor]:
        """As `attend`; also returns the weights before dropout, B×H×T×S."""
        bias = prepared.inputs.bias
        padding = prepared.inputs.padding
        # B×H×T×E · B×H×E×S -> B×H×T×S
        scores = q @ k.transpose(-2, -1)
        if relative is not None:
            scores = scores + relative.scores(q, k, prepared.start)
        if bias is not None:
            scores = scores + bias
        if padding is not None:
            # Not −inf: a row in which every key is padding would become NaN.
            scores = scores.masked_fill(padding, torch.finfo(scores.dtype).min)
        weights = self.weights(scores, v.dtype)
        dropped = drop(weights, p) if p else weights
        # B×H×T×S · B×H×S×D -> B×H×T×D
        out = dropped @ v
        if relative is not None and relative.for_values is not None:
            out = out + relative.for_values.weighted_sum(dropped, prepared.start)
        return out, weights

    def weights(self, scores: Tensor, dtype: torch.dtype) -> Tensor:
        """Softmax over the keys, in fp32: half precision loses the sum of small exponentials."""
        return scores.softmax(dim=-1, dtype=widened(scores.dtype)).to(dtype)


EAGER = ATTENTION_BACKENDS.register(Eager.name)(Eager())
