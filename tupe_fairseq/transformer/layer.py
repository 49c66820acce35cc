"""One Transformer layer: attention and feed-forward, each in a residual with a LayerNorm."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..attention import (
    CrossAttention,
    LayerCache,
    Prepared,
    Source,
    TupeMultiheadAttention,
)
from ..kernels.dropout import Dropout
from ..kernels.linear import project
from .config import StackConfig
from .layer_options import LayerOptions

#: Activations of feed-forward blocks with a gate.
GATED: dict[str, Callable[[Tensor], Tensor]] = {"geglu": F.gelu, "swiglu": F.silu}


class TransformerLayer(nn.Module):
    """Post-LN (Vaswani et al. 2017) or pre-LN layer with fairseq's parameter names.

    Args:
        self_attn: the self-attention.
        config: of the stack. With a source, the layer also attends to that.
    """

    def __init__(self, self_attn: TupeMultiheadAttention, config: StackConfig):
        super().__init__()
        width = self_attn.embed_dim
        options = config.layer_options
        to_source = None
        if config.source_dim is not None:
            to_source = CrossAttention(
                width,
                self_attn.num_heads,
                config.source_dim,
                config.attention_dropout,
                options.attention_bias,
            )
        self.self_attn = self_attn
        self.gated = options.gated_ffn is not None
        self.activation_fn = GATED.get(options.gated_ffn or "", config.activation_fn)
        self.self_attn_layer_norm = build_norm(width, options)
        # With a gate, the first half is for the activation.
        self.fc1 = nn.Linear(width, config.ffn_dim * (1 + self.gated), options.ffn_bias)
        self.fc2 = nn.Linear(config.ffn_dim, width, options.ffn_bias)
        self.final_layer_norm = build_norm(width, options)
        self.dropout_module = Dropout(config.dropout)
        self.activation_dropout_module = Dropout(config.activation_dropout)
        self.normalize_before = config.normalize_before
        self.encoder_attn = to_source
        self.encoder_attn_layer_norm = build_norm(width, options) if to_source else None

    def forward(
        self,
        x: Tensor,
        prepared: Prepared,
        cache: LayerCache | None = None,
        source: Source | None = None,
        need_weights: bool = False,
        read: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """One layer.

        Args:
            x: B×T×C or N×C; with a cache, the tokens that follow those in it.
            prepared: what layers share in this pass.
            cache: of this layer in incremental decoding, or None.
            source: the output of the encoder, or None.
            need_weights: whether to return the weights of the attention to the source.
            read: the M tokens that are read after this layer, by their indices among the N
                tokens, or the B·T of B×T×C; by default all. All tokens are attended to, but the
                feed-forward block is computed for these alone.

        Returns:
            The shape of x, or M×C; and the weights, B×H×T×S, or None.
        """
        pre = self.normalize_before
        out = self.self_attn(self.self_attn_layer_norm(x) if pre else x, prepared, cache)
        if read is not None:
            out = out.flatten(0, -2).index_select(0, read)
            x = x.flatten(0, -2).index_select(0, read)
        x = self._add(out, x, self.self_attn_layer_norm)
        weights = None
        norm = self.encoder_attn_layer_norm
        if self.encoder_attn is not None and norm is not None and source is not None:
            if cache is not None and cache.source is None:
                cache.source = self.encoder_attn.project(source)
            projected = None if cache is None else cache.source
            queries = norm(x) if pre else x
            out, weights = self.encoder_attn(queries, source, projected, need_weights)
            x = self._add(out, x, norm)
        out = self._feed_forward(self.final_layer_norm(x) if pre else x)
        return self._add(out, x, self.final_layer_norm), weights

    def _add(self, out: Tensor, residual: Tensor, norm: nn.Module) -> Tensor:
        """The end of a block."""
        total = residual + self.dropout_module(out)
        return total if self.normalize_before else norm(total)

    def _feed_forward(self, x: Tensor) -> Tensor:
        if self.gated:
            x, gate = project(x, self.fc1).chunk(2, -1)
            x = self.activation_fn(x)
            x = x * gate if torch.is_grad_enabled() else x.mul_(gate)
        else:
            gelu = self.activation_fn is F.gelu
            x = project(x, self.fc1, gelu)
            x = x if gelu else self.activation_fn(x)
        return project(self.activation_dropout_module(x), self.fc2)


def build_norm(width: int, options: LayerOptions) -> nn.Module:
    """The norm of vectors of this width."""
    if options.norm == "rms":
        return nn.RMSNorm(width, eps=1e-5)
    return nn.LayerNorm(width, bias=options.norm_bias)


def set_epsilon(model: nn.Module, epsilon: float) -> None:
    """Set what all norms of a model add to variances, or RMSNorms to mean squares."""
    norms: Iterable[Any] = model.modules()
    for norm in norms:
        if hasattr(norm, "normalized_shape"):
            norm.eps = epsilon
