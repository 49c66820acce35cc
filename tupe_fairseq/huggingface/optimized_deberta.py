"""DeBERTa-v2 and v3: self-attention without tensors of T×T×C."""

from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers.models.deberta_v2 import modeling_deberta_v2

from ..attention import Prepared
from ..kernels.linear import project
from ..position.base import PositionEncoding
from ..position.deberta import DebertaPosition, released_options
from ..position.relative import FixedVectors, RelativeVectors
from .modules import by_token, drops_plainly, rate_of
from .optimized import CLASSES, Hooks, SelfAttention, attend, packed


class DebertaHooks(Hooks):
    """The hooks of an encoder whose layers hand on what is in the place of relative positions."""

    #: The encoder always returns hidden states.
    unserved = ("query_states", "relative_pos", "output_attentions")

    @staticmethod
    def unsupported(model: Any) -> str:
        config = model.config
        if not config.relative_attention:
            return "relative_attention is False"
        if getattr(config, "conv_kernel_size", 0):
            return f"conv_kernel_size is {config.conv_kernel_size}"
        return f"z_steps is {model.z_steps}" if model.z_steps > 1 else ""

    def build_encoding(self) -> PositionEncoding:
        # The embeddings add the absolute positions, if there are any.
        options = {**released_options(self.config), "deberta_absolute": False}
        encoding: Any = self.encoding_of("deberta", **options)
        # The encoder has the vectors, and hands them to its layers.
        encoding.weight = nn.Parameter(torch.empty(len(encoding.weight), 0))
        encoding.norm = None
        return encoding

    def before(self, module: Any, args: Any, named: dict[str, Any]) -> Any:
        if len(args) != 2 or not self.serves(module.layer, named):
            return None
        x, mask = args
        if mask.shape != x.shape[:2]:
            return None
        if self.reads_first and (mask[:, :-1] < mask[:, 1:]).any():
            # Padding before a token, which sees no token in transformers.
            return None
        layout = self.layout(module, x, mask == 0)
        if layout is None:
            return None
        self.encoding.to(x.device)
        prepared = self.plan.prepare(self.encoding, x, layout)
        # Of four dimensions, which the encoder hands on.
        all_seen = x.new_ones(1, 1, 1, 1)
        return (packed(layout, x), all_seen), {**named, "relative_pos": prepared}


class DisentangledSelfAttention(SelfAttention, modeling_deberta_v2.DisentangledSelfAttention):
    """As the class of transformers; `relative_pos` may be what has been prepared."""

    projections = ("query_proj", "key_proj", "value_proj")
    #: The vectors by distance, where weights are constant.
    fixed: FixedVectors

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Any,
        output_attentions: bool = False,
        query_states: Tensor | None = None,
        relative_pos: Any = None,
        rel_embeddings: Any = None,
    ) -> Any:
        if not isinstance(relative_pos, Prepared):
            more = (output_attentions, query_states, relative_pos, rel_embeddings)
            return super().forward(hidden_states, attention_mask, *more)
        encoding = cast(DebertaPosition, relative_pos.encoding)
        relative = self.relative(encoding, rel_embeddings, relative_pos.layout.length)
        qkv = self.projected(hidden_states, self.scale(encoding))
        p = rate_of(self.dropout)
        return attend(relative_pos, qkv, self.num_attention_heads, p, relative), None

    def is_served(self) -> bool:
        return drops_plainly(self.dropout)

    def scale(self, encoding: Any = None) -> float:
        return float((encoding.score_terms * self.attention_head_size) ** -0.5)

    def relative(
        self, encoding: DebertaPosition, table: Tensor, length: int
    ) -> RelativeVectors | None:
        """The vectors by distance of T tokens.

        Args:
            encoding: that of the configuration.
            table: P, normalised where the configuration says so.
            length: T.
        """
        if hasattr(self, "fixed"):
            return self.fixed.within(length)
        if not self.pos_att_type:
            return None
        own: Any = self
        shared = self.share_att_key
        of_keys: Any = own.key_proj if shared else getattr(own, "pos_key_proj", None)
        of_queries: Any = own.query_proj if shared else getattr(own, "pos_query_proj", None)
        near = encoding.rows_reached(length)
        reached = slice(encoding.rows_a_side - near, encoding.rows_a_side + near)
        parts = (self.pos_dropout, of_keys, of_queries)
        if all(part is None or by_token(part) for part in parts):
            table = table[reached]
            reached = slice(None)
        # As in transformers, of three dimensions.
        rows = self.pos_dropout(table[None])
        pos_k = project(rows, of_keys)[0, reached] if "c2p" in self.pos_att_type else None
        pos_q = project(rows, of_queries)[0, reached] if "p2c" in self.pos_att_type else None
        return encoding.vectors(pos_k, pos_q, length)

    def fix(self, encoding: DebertaPosition, table: Tensor) -> None:
        """Compute the vectors by distance once, of weights that are constant."""
        vectors = self.relative(encoding, table, encoding.longest)
        if vectors is not None:
            self.fixed = FixedVectors(vectors)


CLASSES[modeling_deberta_v2.DisentangledSelfAttention] = DisentangledSelfAttention
