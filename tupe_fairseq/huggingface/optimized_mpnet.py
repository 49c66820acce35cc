"""MPNet: the layers of BERT, and a bias by distance without a tensor of B×H×T×T."""

import copy
from typing import Any, cast

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.mpnet import modeling_mpnet

from ..attention import Prepared
from ..kernels.linear import project
from ..position.base import PositionEncoding, Shape
from ..position.bias import AttentionBias
from .modules import drops_plainly, rate_of
from .optimized import CLASSES, SelfAttention, attend
from .optimized_bert import BertHooks


class MPNetBias(PositionEncoding):
    """The bias by distance of one pass; the encoder has its parameters."""

    #: H×(2T−1)
    values: Tensor

    def attention_bias(self, queries: int, keys: int, start: int = 0) -> AttentionBias:
        return AttentionBias(keys, by_distance=self.values, start=start)

    def of(self, encoder: Any, distance: Tensor) -> "MPNetBias":
        """The bias of an encoder at the distances 1 − T, ..., T − 1, by its own modules."""
        buckets = encoder.relative_position_bucket(distance)
        result = copy.copy(self)
        result.values = encoder.relative_attention_bias(buckets).t()
        return result


class MPNetHooks(BertHooks):
    """The hooks of an encoder that computes one bias for all layers."""

    @staticmethod
    def unsupported(model: Any) -> str:
        return ""

    @staticmethod
    def attention_of(layer: Any) -> Any:
        return getattr(getattr(layer, "attention", None), "attn", None)

    def build_encoding(self) -> PositionEncoding:
        config = self.config
        sizes = (config.hidden_size, config.num_attention_heads, config.max_position_embeddings)
        return MPNetBias(Shape(*sizes))

    def encoding_in(self, module: Any, length: int, x: Tensor) -> PositionEncoding:
        encoding = cast(MPNetBias, self.encoding)
        return encoding.of(module, torch.arange(1 - length, length, device=x.device))


class MPNetSelfAttention(SelfAttention, modeling_mpnet.MPNetSelfAttention):
    """As the class of transformers; `attention_mask` may be what has been prepared."""

    projections = ("q", "k", "v")

    def forward(
        self, hidden_states: Tensor, attention_mask: Any = None, *args: Any, **named: Any
    ) -> Any:
        if not isinstance(attention_mask, Prepared):
            return super().forward(hidden_states, attention_mask, *args, **named)
        qkv = self.projected(hidden_states, self.scale())
        out = attend(attention_mask, qkv, self.num_attention_heads, rate_of(self.dropout))
        return (project(out, self.o),)

    def is_served(self) -> bool:
        return drops_plainly(self.dropout)


class MPNetEncoder(modeling_mpnet.MPNetEncoder):
    """As the class of transformers; `attention_mask` may have the bias of all layers."""

    def forward(
        self, hidden_states: Tensor, attention_mask: Any = None, *args: Any, **named: Any
    ) -> Any:
        if not isinstance(attention_mask, Prepared):
            return super().forward(hidden_states, attention_mask, *args, **named)
        for layer in self.layer:
            hidden_states = layer(hidden_states, attention_mask)[0]
        return BaseModelOutput(hidden_states) if named.get("return_dict") else (hidden_states,)


CLASSES[modeling_mpnet.MPNetSelfAttention] = MPNetSelfAttention
CLASSES[modeling_mpnet.MPNetEncoder] = MPNetEncoder
