"""Hooks of the encoders that hand on attention masks in another way than BERT."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..attention import LayerPlan, Prepared
from ..position.base import PositionEncoding
from ..position.deberta import released_options
from .optimized import Hooks, packed, unpacked


class DebertaHooks(Hooks):
    """Those of DeBERTa-v2 and v3; what has been prepared is in the place of relative positions."""

    @staticmethod
    def unsupported(model: Any) -> str:
        config = model.config
        if not config.relative_attention:
            return "relative_attention is False"
        if getattr(config, "conv_kernel_size", 0):
            return f"conv_kernel_size is {config.conv_kernel_size}"
        return f"z_steps is {model.z_steps}" if model.z_steps > 1 else ""

    def build_encoding(self, name: str = "deberta", **options: Any) -> PositionEncoding:
        # The embeddings add the absolute positions, if there are any.
        options = {**released_options(self.config), "deberta_absolute": False}
        encoding: Any = super().build_encoding(name, **options)
        # The encoder has the vectors, and hands them to its layers.
        encoding.weight, encoding.norm = (
            nn.Parameter(encoding.weight.new_empty(len(encoding.weight), 0)),
            None,
        )
        return encoding

    def before(self, module: Any, args: Any, named: dict[str, Any]) -> Any:
        if len(args) != 2 or not self.serves(module.layer, named):
            return None
        x, mask = args
        if mask.shape != x.shape[:2]:
            return None
        layout = self.layout(module, x, mask == 0, False)
        if layout is None:
            return None
        if self.encoding.buckets is not None and self.encoding.buckets.device != x.device:
            self.encoding.to(x.device)
        prepared = self.plan.prepare(self.encoding, x, layout)
        # Of four dimensions, which the encoder hands on.
        all_seen = x.new_ones(1, 1, 1, 1)
        return (packed(layout, x), all_seen), {**named, "relative_pos": prepared}

    def after(self, module: Any, args: Any, named: dict[str, Any], out: Any) -> Any:
        prepared = named.get("relative_pos")
        return unpacked(prepared.layout, out) if isinstance(prepared, Prepared) else None


class ModernBertHooks(Hooks):
    """Those of ModernBERT, whose embeddings have no positions: its inputs are packed."""

    owner = ""
    layers = "layers"
    path = ("attn",)
    parts = ("layers", "final_norm")
    inputs: ClassVar = ("input_ids", "attention_mask", "position_ids", "inputs_embeds")

    def __init__(self, model: Any):
        super().__init__(model)
        window = self.config.local_attention // 2
        self.plans = {
            "full_attention": self.plan,
            "sliding_attention": LayerPlan.of(self.encoding, window=window),
        }

    @staticmethod
    def unsupported(model: Any) -> str:
        if not hasattr(model.config, "layer_types"):
            return "transformers 5 is required"
        if model.config.local_attention < 2:
            return f"unsupported local_attention {model.config.local_attention}"
        return ""

    def ends(self, model: nn.Module) -> tuple[nn.Module, nn.Module]:
        return model.get_submodule("layers.0"), model.get_submodule("final_norm")

    def before(self, module: Any, args: Any, named: dict[str, Any]) -> Any:
        inputs = dict(zip(self.inputs, args, strict=False)) | named
        mask, name = inputs.get("attention_mask"), "input_ids"
        if inputs.get(name) is None:
            name = "inputs_embeds"
        x = inputs.get(name)
        if x is None or not x.numel() or not self.serves(module.layers, inputs):
            return None
        if mask is not None and not (isinstance(mask, Tensor) and mask.shape == x.shape[:2]):
            return None
        hidden = None if mask is None else mask == 0
        layout = self.layout(module, x, hidden, self.wants_states(inputs))
        if layout is None:
            return None
        like = torch.empty(0, dtype=module.final_norm.weight.dtype, device=x.device)
        prepared = {
            kind: plan.prepare(self.encoding, like, layout) for kind, plan in self.plans.items()
        }
        inputs |= {name: packed(layout, x), "attention_mask": prepared}
        if layout.batch_cells is not None:
            positions = inputs.get("position_ids")
            if positions is None:
                positions = torch.arange(layout.length, device=x.device)[None]
            inputs["position_ids"] = packed(layout, positions.expand(x.shape[:2]))
        return (), inputs

    def after(self, module: Any, args: Any, named: dict[str, Any], out: Any) -> Any:
        prepared = named.get("attention_mask")
        return (
            unpacked(prepared["full_attention"].layout, out)
            if isinstance(prepared, dict)
            else None
        )
