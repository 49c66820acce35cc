"""`DebertaV2Model` of transformers, computed by the encoding `deberta`."""

from typing import Any, ClassVar

import transformers
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from ..position.deberta import released_options
from .encoder import HuggingFaceStack
from .optimized import Link, Optimized


class DebertaV2Model(Optimized, transformers.DebertaV2Model):
    """transformers' DebertaV2Model, of DeBERTa-v2 and v3."""

    parts: ClassVar = {
        **Optimized.parts,
        "self_attn.q_proj": ("attention.self", "query_proj"),
        "self_attn.k_proj": ("attention.self", "key_proj"),
        "self_attn.v_proj": ("attention.self", "value_proj"),
    }

    @classmethod
    def unsupported(cls, model: Any) -> str:
        config = model.config
        if not config.relative_attention:
            return "relative_attention is False"
        if getattr(config, "conv_kernel_size", 0):
            return f"conv_kernel_size is {config.conv_kernel_size}"
        if model.z_steps > 1:
            return f"z_steps is {model.z_steps}"
        return ""

    def encoding_options(self) -> tuple[str, dict[str, Any]]:
        # The embeddings add the absolute positions, if there are any.
        return "deberta", {**released_options(self.config), "deberta_absolute": False}

    def make_links(self, stack: HuggingFaceStack) -> list[Link]:
        positions = stack.embed_positions
        encoder = self.encoder
        links = [
            *super().make_links(stack),
            (positions, "weight", encoder.rel_embeddings, "weight"),
        ]
        if positions.norm is not None:
            links.append((positions, "norm", encoder, "LayerNorm"))
        for terms, theirs in zip(stack.layers.terms(), encoder.layer, strict=True):
            for name, part in (("pos_k_proj", "pos_key_proj"), ("pos_q_proj", "pos_query_proj")):
                if getattr(terms, name, None) is not None:
                    links.append((terms, name, theirs.attention.self, part))
        return links

    def make_rates(self, stack: HuggingFaceStack) -> list[Link]:
        attentions = [layer.attention.self for layer in self.encoder.layer]
        tables = [
            (terms, "dropout", theirs, "pos_dropout")
            for terms, theirs in zip(stack.layers.terms(), attentions, strict=True)
            if terms is not None
        ]
        return [*super().make_rates(stack), *tables]

    def output(self, last: Tensor, **more: Any) -> Any:
        return BaseModelOutput(last_hidden_state=last, **more)
