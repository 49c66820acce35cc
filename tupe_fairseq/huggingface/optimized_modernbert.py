"""ModernBERT: self-attention that computes no keys outside its window."""

from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers.models.modernbert import modeling_modernbert

from ..attention import LayerPlan, Prepared
from ..kernels.linear import project
from ..kernels.rotation import rotate
from .modules import is_gelu, is_read, rounds_alone, row_by_row
from .optimized import CLASSES, Hooks, SelfAttention, attend, packed

GLOBAL = "full_attention"
LOCAL = "sliding_attention"


class ModernBertHooks(Hooks):
    """The hooks of an encoder whose embeddings have no positions: its inputs are packed."""

    owner = ""
    parts = ("layers", "final_norm")
    unserved = ("output_attentions", "output_hidden_states", "is_causal")
    inputs: ClassVar = ("input_ids", "attention_mask", "position_ids", "inputs_embeds")

    def __init__(self, config: Any):
        super().__init__(config)
        window = config.local_attention // 2
        self.plans = {GLOBAL: self.plan, LOCAL: LayerPlan.of(self.encoding, window=window)}

    @staticmethod
    def unsupported(model: Any) -> str:
        reach = model.config.local_attention
        return f"unsupported local_attention {reach}" if reach < 2 else ""

    @staticmethod
    def attention_of(layer: Any) -> Any:
        return getattr(layer, "attn", None)

    def before(self, module: Any, args: Any, named: dict[str, Any]) -> Any:
        inputs = dict(zip(self.inputs, args, strict=False)) | named
        mask = inputs.get("attention_mask")
        name = "input_ids" if inputs.get("input_ids") is not None else "inputs_embeds"
        x = inputs.get(name)
        if x is None or not x.numel() or not self.serves(module.layers, inputs):
            return None
        if mask is not None and not (isinstance(mask, Tensor) and mask.shape == x.shape[:2]):
            return None
        seen = None if mask is None else mask.ne(0)
        layout = self.layout(module, x, None if seen is None else ~seen)
        if layout is None:
            return None
        dtype = module.final_norm.weight.dtype
        like = torch.empty(0, dtype=dtype, device=x.device)
        prepared = {
            kind: plan.prepare(self.encoding, like, layout) for kind, plan in self.plans.items()
        }
        inputs |= {name: packed(layout, x), "attention_mask": prepared}
        if seen is not None and layout.batch_cells is not None:
            positions = inputs.get("position_ids")
            if positions is None:
                # From the first token of each text on, wherever its padding is.
                positions = seen.cumsum(1) - 1
            inputs["position_ids"] = packed(layout, positions.expand(x.shape[:2]))
        return (), inputs


class ModernBertAttention(SelfAttention, modeling_modernbert.ModernBertAttention):
    """As the class of transformers; `attention_mask` may be what has been prepared."""

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: Any = None,
        attention_mask: Any = None,
        **named: Any,
    ) -> Any:
        prepared = self.prepared(attention_mask, **named)
        if not isinstance(prepared, Prepared):
            named |= {"position_embeddings": position_embeddings, "attention_mask": attention_mask}
            return super().forward(hidden_states, **named)
        if position_embeddings is None:
            # In transformers 4, layers compute them.
            position_embeddings = self.rotary_emb(hidden_states, named["position_ids"])
        # Both halves of transformers' tables, B×T×D, are the same.
        cos, sin = (each.float().chunk(2, -1)[0][:, None] for each in position_embeddings)
        q, k, v = (
            project(hidden_states, self.Wqkv).unflatten(-1, (3, -1, self.head_dim)).unbind(-3)
        )
        heads = q.size(-2)
        scale = self.head_dim**-0.5
        q = rotate(q.transpose(1, 2), cos * scale, sin * scale, halves=True)
        k = rotate(k.transpose(1, 2), cos, sin, halves=True)
        flat = [each.transpose(1, 2).flatten(2) for each in (q, k, v.transpose(1, 2))]
        p = self.attention_dropout if self.training else 0.0
        return self.out_drop(project(attend(prepared, flat, heads, p), self.Wo)), None

    def prepared(self, mask: Any, sliding_window_mask: Any = None, **_: Any) -> Any:
        """The mask of this layer, of which transformers 4 gives two."""
        is_local = sliding_window_mask is not None and self.local_attention[0] > 0
        return sliding_window_mask if is_local else mask


class ModernBertMLP(modeling_modernbert.ModernBertMLP):
    """As the class of transformers; the gate is applied in place."""

    def forward(self, hidden_states: Tensor) -> Tensor:
        alone = rounds_alone(self.Wi, self.act)
        x, gate = project(hidden_states, self.Wi).chunk(2, -1)
        x = row_by_row(self.act, x) if alone else self.act(x)
        in_place = alone or (is_gelu(self.act) and not is_read(self.Wi, self.act))
        return project(self.drop(x.mul_(gate) if in_place else x * gate), self.Wo)


class ModernBertModel(modeling_modernbert.ModernBertModel):
    """As the class of transformers 4; the mask may be what has been prepared."""

    def _update_attention_mask(self, attention_mask: Any, *args: Any, **named: Any) -> Any:
        if isinstance(attention_mask, dict):
            return attention_mask[GLOBAL], attention_mask[LOCAL]
        return super()._update_attention_mask(attention_mask, *args, **named)


if hasattr(modeling_modernbert.ModernBertModel, "_update_attention_mask"):
    CLASSES[modeling_modernbert.ModernBertModel] = ModernBertModel
CLASSES[modeling_modernbert.ModernBertAttention] = ModernBertAttention
CLASSES[modeling_modernbert.ModernBertMLP] = ModernBertMLP
