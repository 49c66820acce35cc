"""`ModernBertModel` of transformers, computed by pre-LN layers with rotary positions."""

from collections.abc import Iterable
from typing import Any, ClassVar

import transformers
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from ..attention import Layout
from .encoder import HuggingFaceStack, Record
from .modernbert import layer_options, rotation, windows
from .optimized import Link, Optimized
from .precision import JoinedAttention


class ModernBertModel(Optimized, transformers.ModernBertModel):
    """transformers' ModernBertModel."""

    parts: ClassVar = {
        "self_attn.qkv_proj": ("attn", "Wqkv"),
        "self_attn.out_proj": ("attn", "Wo"),
        "self_attn_layer_norm": ("", "attn_norm"),
        "fc1": ("mlp", "Wi"),
        "fc2": ("mlp", "Wo"),
        "final_layer_norm": ("", "mlp_norm"),
    }
    dropouts: ClassVar = {"activation_dropout_module.p": ("mlp", "drop")}
    body = "layers"

    @classmethod
    def unsupported(cls, model: Any) -> str:
        found = len(model.layers)
        expected = model.config.num_hidden_layers
        # Which of them are global is known by their numbers.
        return f"num_hidden_layers is {expected}, but it has {found}" if found != expected else ""

    @property
    def own_layers(self) -> Iterable[Any]:
        return self.layers

    def encoding_options(self) -> tuple[str, dict[str, Any]]:
        config = self.config
        options = {**rotation(config), **windows(config), "num_layers": config.num_hidden_layers}
        return "rope", options

    def stack_options(self) -> dict[str, Any]:
        return {
            "attention_dropout": 0.0,
            "normalize_before": True,
            "layer_options": layer_options(self.config),
        }

    def make_links(self, stack: HuggingFaceStack) -> list[Link]:
        layers: Iterable[Any] = stack.layers
        for layer in layers:
            attention = layer.self_attn
            layer.self_attn = JoinedAttention(attention, attention.scaling)
        return [*super().make_links(stack), (stack, "layer_norm", self, "final_norm")]

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor | None = None,
        attention_mask: Any = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **more: Any,
    ) -> Any:
        """As the class of transformers, which itself computes positions that are given."""
        inputs = {"input_ids": input_ids, "inputs_embeds": inputs_embeds}
        return self.compute(inputs, attention_mask, {**more, "position_ids": position_ids})

    def _unserved(self, mask: Any, more: dict[str, Any]) -> str:
        # transformers 4 has no `layer_types`, and the last hidden states without the final norm.
        if more.get("output_hidden_states") and not hasattr(self.config, "layer_types"):
            return "output_hidden_states in transformers 4"
        return super()._unserved(mask, more)

    def _run(self, x: Tensor, layout: Layout, record: Record) -> Tensor:
        """Rotations of longer texts than the configuration says are computed once, too."""
        if layout.length > self.stack.embed_positions.shape.max_positions:
            self.stack.embed_positions = self.encoding(layout.length)
        return super()._run(x, layout, record)

    def output(self, last: Tensor, **more: Any) -> Any:
        return BaseModelOutput(last_hidden_state=last, **more)
