"""BERT and the encoders that have its layers."""

import sys
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from ..attention import Prepared
from ..kernels.linear import PackedLinear, project
from ..position.base import PositionEncoding
from .modules import is_gelu, is_read, rounds_alone, row_by_row
from .optimized import CLASSES, Hooks, SelfAttention, attend, packed

#: How names of classes begin in the models that have the layers of BERT.
IS_OLD = transformers.__version__ < "5"
LIKE_BERT = ("Bert", "Roberta", "XLMRoberta", "Camembert")


class BertHooks(Hooks):
    """The hooks of an encoder with the layers of BERT, whose embeddings add the positions."""

    @staticmethod
    def unsupported(model: Any) -> str:
        config = model.config
        if config.is_decoder or config.add_cross_attention:
            return "it is a decoder"
        kind = getattr(config, "position_embedding_type", "absolute")
        return "" if kind == "absolute" else f"position_embedding_type is {kind!r}"

    def before(self, module: Any, args: Any, named: dict[str, Any]) -> Any:
        mask = named.get("attention_mask")
        if len(args) != 1 or not self.serves(module.layer, named):
            return None
        x = args[0]
        eager = getattr(self.config, "_attn_implementation", None) == "eager"
        if eager and mask is not None and mask.dtype == torch.bool:
            # The caller's, whose values transformers adds to the scores.
            return None
        hidden = None if mask is None else hidden_keys(mask)
        if mask is not None and (hidden is None or hidden.shape != x.shape[:2]):
            return None
        layout = self.layout(module, x, hidden)
        if layout is None:
            return None
        prepared = self.plan.prepare(self.encoding_in(module, layout.length, x), x, layout)
        return (packed(layout, x),), {**named, "attention_mask": prepared}

    def encoding_in(self, module: Any, length: int, x: Tensor) -> PositionEncoding:
        """What adds positions to the scores of T tokens; nothing does in BERT."""
        return self.encoding


def hidden_keys(mask: Any) -> Tensor | None:
    """Which keys a mask of transformers hides, B×T; None if that is not the same for all queries.

    Args:
        mask: B×1×T×T or B×1×1×T, True at what is seen, or added to the scores.
    """
    if not isinstance(mask, Tensor) or mask.dim() != 4 or mask.size(1) != 1 or mask.is_meta:
        return None
    first = mask[:, :, :1]
    if mask.stride(2) and not torch.equal(first.expand_as(mask), mask):
        return None
    row = first[:, 0, 0]
    if row.dtype == torch.bool:
        return ~row
    hidden = row < 0
    least = torch.finfo(row.dtype).min if row.is_floating_point() else None
    return hidden if least and bool((row == 0).logical_or(row <= least).all()) else None


class LikeBertAttention(SelfAttention, nn.Module):
    """The part that the classes of `LIKE_BERT` share."""

    projections = ("query", "key", "value")

    def forward(
        self, hidden_states: Tensor, attention_mask: Any = None, *args: Any, **named: Any
    ) -> Any:
        """As the class of transformers; `attention_mask` may be what has been prepared."""
        if not isinstance(attention_mask, Prepared):
            return super().forward(hidden_states, attention_mask, *args, **named)
        own: Any = self
        qkv = self.projected(hidden_states, self.scale())
        p = own.dropout.p if self.training else 0.0
        return attend(attention_mask, qkv, own.num_attention_heads, p), None


class LikeBertLayer(nn.Module):
    """A layer that calls its parts without transformers' search for their arguments."""

    attention: Any
    intermediate: Any
    output: Any

    def forward(
        self, hidden_states: Tensor, attention_mask: Any = None, *args: Any, **named: Any
    ) -> Any:
        """As the class of transformers; `attention_mask` may be what has been prepared."""
        if not isinstance(attention_mask, Prepared):
            return super().forward(hidden_states, attention_mask, *args, **named)
        x = self.attention(hidden_states, attention_mask)[0]
        x = self.output(self.intermediate(x), x)
        return (x,) if IS_OLD else x


class LikeBertIntermediate(nn.Module):
    """The first half of a feed-forward block, whose gelu is computed in place."""

    dense: Any
    intermediate_act_fn: Any

    def forward(self, hidden_states: Tensor) -> Any:
        """As the class of transformers."""
        dense = self.dense
        act = self.intermediate_act_fn
        if rounds_alone(dense, act):
            return row_by_row(act, dense(hidden_states))
        if not is_gelu(act) or is_read(dense, act):
            return act(project(hidden_states, dense))
        if type(dense) is PackedLinear:
            return dense(hidden_states, gelu=True)
        return torch.ops.aten.gelu_(project(hidden_states, dense))


class LikeBertOutput(nn.Module):
    """The end of a block, whose residual is added in place."""

    dense: Any
    dropout: Any
    LayerNorm: Any

    def forward(self, hidden_states: Tensor, input_tensor: Tensor) -> Any:
        """As the class of transformers."""
        dense = self.dense
        dropout = self.dropout
        x = project(hidden_states, dense)
        if dropout.training or type(dropout) is not nn.Dropout or is_read(dense, dropout):
            return self.LayerNorm(dropout(x) + input_tensor)
        # Under autocast, products alone are in half precision.
        same = x.dtype == input_tensor.dtype
        return self.LayerNorm(x.add_(input_tensor) if same else x + input_tensor)


def derive(ours: type, theirs: type) -> None:
    """Make a class of the name that transformers' class has, by which models can be pickled."""
    kind = type(theirs.__name__, (ours, theirs), {"__module__": __name__})
    globals()[theirs.__name__] = CLASSES[theirs] = kind


for _name in LIKE_BERT:
    _theirs = sys.modules[getattr(transformers, f"{_name}Model").__module__]
    derive(LikeBertLayer, getattr(_theirs, f"{_name}Layer"))
    for _kind in ("SelfAttention", "SdpaSelfAttention"):
        # The second is in transformers 4 alone.
        if hasattr(_theirs, _name + _kind):
            derive(LikeBertAttention, getattr(_theirs, _name + _kind))
for _name in (*LIKE_BERT, "DebertaV2", "MPNet"):
    _theirs = sys.modules[getattr(transformers, f"{_name}Model").__module__]
    derive(LikeBertIntermediate, getattr(_theirs, f"{_name}Intermediate"))
    derive(LikeBertOutput, getattr(_theirs, f"{_name}Output"))
    # MPNet's is a part of its attention.
    if hasattr(_theirs, f"{_name}SelfOutput"):
        derive(LikeBertOutput, getattr(_theirs, f"{_name}SelfOutput"))
