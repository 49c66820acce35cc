"""One layer of a decoder: self-attention, attention to the source, feed-forward."""

from collections.abc import Callable

from torch import Tensor, nn

from ..attention import (
    CrossAttention,
    LayerCache,
    SharedAttention,
    Source,
    TupeMultiheadAttention,
)
from .encoder_layer import EncoderLayer


class DecoderLayer(EncoderLayer):
    """Post-LN or pre-LN layer with fairseq's parameter names.

    Args:
        self_attn: the self-attention.
        encoder_attn: the attention to the source, or None in a language model.
        ffn_dim: width between the two feed-forward projections.
        activation_fn: applied there.
        dropout: on the output of every block.
        activation_dropout: after activation_fn.
        normalize_before: LayerNorm before each block (pre-LN) instead of after it.
    """

    def __init__(
        self,
        self_attn: TupeMultiheadAttention,
        encoder_attn: CrossAttention | None,
        ffn_dim: int,
        activation_fn: Callable[[Tensor], Tensor],
        dropout: float,
        activation_dropout: float = 0.0,
        normalize_before: bool = False,
    ):
        super().__init__(
            self_attn, ffn_dim, activation_fn, dropout, activation_dropout, normalize_before
        )
        self.encoder_attn = encoder_attn
        self.encoder_attn_layer_norm = nn.LayerNorm(self_attn.embed_dim) if encoder_attn else None

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        shared: SharedAttention,
        source: Source | None = None,
        cache: LayerCache | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """One layer.

        Args:
            x: B×T×C; with a cache, T is 1.
            shared: what `share_attention` prepared, or with a cache `DecoderCache.step`.
            source: the output of the encoder, or None.
            cache: of this layer in incremental decoding, or None.
            need_weights: whether to return the weights of the attention to the source.

        Returns:
            B×T×C, and the weights, B×H×T×S, or None.
        """
        pre = self.normalize_before
        out, _ = self.self_attn(self.self_attn_layer_norm(x) if pre else x, shared, cache)
        x = self._add(out, x, self.self_attn_layer_norm)
        weights = None
        if self.encoder_attn is not None and source is not None:
            if cache is not None and cache.source is None:
                cache.source = self.encoder_attn.project(source)
            projected = None if cache is None else cache.source
            queries = self.encoder_attn_layer_norm(x) if pre else x
            out, weights = self.encoder_attn(queries, source, projected, need_weights)
            x = self._add(out, x, self.encoder_attn_layer_norm)
        out = self._feed_forward(self.final_layer_norm(x) if pre else x)
        return self._add(out, x, self.final_layer_norm), weights
