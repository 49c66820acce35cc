"""Self-attention of transformers, computed by this package where padding has been read.

Each class here is a subclass of the class of the same name in transformers, and `exchange` makes
a module one of them: its projections, dropouts, hooks and parameters stay. Where the mask of
attention is not what `optimized` has prepared, transformers' code runs.
"""

import sys
from collections.abc import Iterator
from typing import Any, cast

import transformers
from torch import Tensor, nn
from transformers.models.deberta_v2 import modeling_deberta_v2
from transformers.models.modernbert import modeling_modernbert

from ..attention import Prepared
from ..position.deberta import DebertaPosition
from ..position.relative import ByDistance, RelativeVectors
from .changes import by_token, changed

#: How names of classes begin in the models whose self-attention is that of BERT.
LIKE_BERT = ("Bert", "Roberta", "XLMRoberta", "Camembert")


def attend(
    prepared: Prepared,
    qkv: tuple[Tensor, Tensor, Tensor],
    heads: int,
    p: float,
    scale: float = 1.0,
    relative: RelativeVectors | None = None,
) -> Tensor:
    """Attention of what has been projected: three of B×T×C or 1×N×C -> the same shape.

    Args:
        prepared: the layout and what the backend has prepared.
        qkv: queries, keys and values.
        heads: H.
        p: probability of dropping an attention weight.
        scale: a factor of the queries.
        relative: vectors by distance, or None.
    """
    layout, is_packed = prepared.layout, prepared.layout.batch_cells is not None
    q, k, v = (layout.per_head(x[0] if is_packed else x, heads) for x in qkv)
    out = prepared.backend.attend(q * scale, k, v, prepared, p, relative)
    # B×H×T×D -> B×T×C -> N×C
    out = layout.from_attention(out.transpose(1, 2).flatten(2))
    return out[None] if is_packed else out


def projected(module: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values; of converted layers by one product, if they still are those."""
    parts = [getattr(module, name) for name in module.projections]
    joined = module._modules.get("joined")
    if joined is None or any(type(each) is not type(joined) or changed(each) for each in parts):
        q, k, v = (each(x) for each in parts)
    else:
        q, k, v = joined(x).chunk(3, -1)
    return q, k, v


class LikeBert(nn.Module):
    """The part that the classes of `LIKE_BERT` share."""

    projections = ("query", "key", "value")

    def forward(
        self, hidden_states: Tensor, attention_mask: Any = None, *args: Any, **named: Any
    ) -> Any:
        """As the class of transformers; `attention_mask` may be what has been prepared."""
        if not isinstance(attention_mask, Prepared):
            return super().forward(hidden_states, attention_mask, *args, **named)
        own: Any = self
        qkv = projected(own, hidden_states)
        p, scale = own.dropout.p if self.training else 0.0, own.attention_head_size**-0.5
        return attend(attention_mask, qkv, own.num_attention_heads, p, scale), None


class DisentangledSelfAttention(modeling_deberta_v2.DisentangledSelfAttention):
    """That of DeBERTa-v2 and v3, without tensors of T×T×C."""

    projections = ("query_proj", "key_proj", "value_proj")
    #: Of the vectors by distance that have been computed for all lengths, the first distances.
    firsts: dict[str, int] | None = None

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Any,
        output_attentions: bool = False,
        query_states: Tensor | None = None,
        relative_pos: Any = None,
        rel_embeddings: Any = None,
    ) -> Any:
        """As the class of transformers; `relative_pos` may be what has been prepared."""
        if not isinstance(relative_pos, Prepared):
            more = output_attentions, query_states, relative_pos, rel_embeddings
            return super().forward(hidden_states, attention_mask, *more)
        encoding = cast(DebertaPosition, relative_pos.encoding)
        scale = (encoding.score_terms * self.attention_head_size) ** -0.5
        relative = self.relative(encoding, rel_embeddings, relative_pos.layout.length, scale)
        # Of nn.Identity, there is none.
        p = getattr(self.dropout, "p", 0.0) if self.dropout.training else 0.0
        heads = self.num_attention_heads
        return attend(
            relative_pos, projected(self, hidden_states), heads, p, scale, relative
        ), None

    def relative(
        self, encoding: DebertaPosition, table: Tensor, length: int, scale: float
    ) -> RelativeVectors | None:
        """The vectors by distance of T tokens.

        Args:
            encoding: that of the configuration.
            table: P, normalised where the configuration says so.
            length: T.
            scale: a factor of q^R.
        """
        if self.firsts is not None:
            fixed: dict[str, Any] = {
                name: ByDistance(self.get_buffer(name), first).within(length, length)
                for name, first in self.firsts.items()
            }
            return RelativeVectors(**fixed)
        near, middle = encoding.rows_reached(length), encoding.rows_a_side
        reached = slice(middle - near, middle + near)
        shared = self.share_att_key
        of_keys: Any = self.key_proj if shared else getattr(self, "pos_key_proj", None)
        of_queries: Any = self.query_proj if shared else getattr(self, "pos_query_proj", None)
        parts = self.pos_dropout, of_keys, of_queries
        if all(part is None or by_token(part) for part in parts):
            table, reached = table[reached], slice(None)
        # As in transformers, of three dimensions.
        rows = self.pos_dropout(table[None])
        for_queries = for_keys = None
        if "c2p" in self.pos_att_type:
            keys = of_keys(rows)[0, reached]
            for_queries = encoding.by_distance(keys, length, reverse=True)
        if "p2c" in self.pos_att_type:
            queries = of_queries(rows)[0, reached]
            for_keys = encoding.by_distance(queries * scale, length, reverse=True)
        return RelativeVectors(for_queries, for_keys) if self.pos_att_type else None

    def fix(self, encoding: DebertaPosition, table: Tensor) -> None:
        """Compute the vectors by distance once, of weights that are constant."""
        scale = (encoding.score_terms * self.attention_head_size) ** -0.5
        # From here on, all distances share the last bucket.
        longest = max(encoding.shape.max_positions, encoding.relative_clip) + 1
        vectors, firsts = self.relative(encoding, table, longest, scale), {}
        for name in ("for_queries", "for_keys"):
            if (by_distance := getattr(vectors, name, None)) is not None:
                buffer = by_distance.vectors.contiguous()
                self.register_buffer(name, buffer, persistent=False)
                firsts[name] = by_distance.first
        self.firsts = firsts if vectors is not None else None


class ModernBertAttention(modeling_modernbert.ModernBertAttention):
    """That of ModernBERT, which computes no keys outside its window."""

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: Any = None,
        attention_mask: Any = None,
        **named: Any,
    ) -> Any:
        """As the class of transformers; `attention_mask` may be what has been prepared."""
        if not isinstance(attention_mask, Prepared):
            named |= {"position_embeddings": position_embeddings, "attention_mask": attention_mask}
            return super().forward(hidden_states, **named)
        qkv = self.Wqkv(hidden_states).unflatten(-1, (3, -1, self.head_dim))
        q, k, v = qkv.unbind(-3)
        rotate = modeling_modernbert.apply_rotary_pos_emb
        q, k = rotate(q, k, *position_embeddings, unsqueeze_dim=2)
        p, heads = self.attention_dropout if self.training else 0.0, q.size(-2)
        flat = q.flatten(2), k.flatten(2), v.flatten(2)
        out = attend(attention_mask, flat, heads, p, self.head_dim**-0.5)
        return self.out_drop(self.Wo(out)), None


def _like_bert() -> Iterator[type]:
    """The classes of transformers; its version 4 has one for each implementation."""
    for name in LIKE_BERT:
        module = sys.modules[getattr(transformers, f"{name}Model").__module__]
        for kind in ("SelfAttention", "SdpaSelfAttention"):
            if hasattr(module, name + kind):
                yield getattr(module, name + kind)


#: The class here of each class of transformers.
CLASSES: dict[type, type] = {
    modeling_deberta_v2.DisentangledSelfAttention: DisentangledSelfAttention,
    modeling_modernbert.ModernBertAttention: ModernBertAttention,
}
for _theirs in _like_bert():
    # By name in this module, so that models can be pickled.
    CLASSES[_theirs] = type(_theirs.__name__, (LikeBert, _theirs), {"__module__": __name__})
    globals()[_theirs.__name__] = CLASSES[_theirs]
OURS = frozenset(CLASSES.values())


def exchange(module: nn.Module) -> None:
    """Let a module compute by the class here, and be the same module with the same parts."""
    module.__class__ = CLASSES[type(module)]
