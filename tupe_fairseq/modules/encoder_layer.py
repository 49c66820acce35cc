"""One Transformer layer: attention and feed-forward, each in a residual with a LayerNorm."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from ..attention import LayerCache, SharedAttention, TupeMultiheadAttention
from ..kernels.dropout import Dropout
from ..kernels.layer_norm import add_and_normalise
from ..kernels.linear import project
from .pruning import PrunableFeedForward


class EncoderLayer(PrunableFeedForward):
    """Post-LN (Vaswani et al. 2017) or pre-LN layer with fairseq's parameter names.

    Args:
        self_attn: the attention.
        ffn_dim: width between the two feed-forward projections.
        activation_fn: applied there.
        dropout: on the output of attention and feed-forward.
        activation_dropout: after activation_fn.
        normalize_before: LayerNorm before each block (pre-LN) instead of after it.
    """

    def __init__(
        self,
        self_attn: TupeMultiheadAttention,
        ffn_dim: int,
        activation_fn: Callable[[Tensor], Tensor],
        dropout: float,
        activation_dropout: float = 0.0,
        normalize_before: bool = False,
    ):
        super().__init__()
        embed_dim = self_attn.embed_dim
        self.self_attn = self_attn
        self.self_attn_layer_norm = nn.LayerNorm(embed_dim)
        self.fc1 = nn.Linear(embed_dim, ffn_dim)
        self.fc2 = nn.Linear(ffn_dim, embed_dim)
        self.final_layer_norm = nn.LayerNorm(embed_dim)
        self.activation_fn = activation_fn
        self.dropout_module = Dropout(dropout)
        self.activation_dropout_module = Dropout(activation_dropout)
        self.normalize_before = normalize_before

    def forward(
        self, x: Tensor, shared: SharedAttention, cache: LayerCache | None = None
    ) -> Tensor:
        """B×T×C or N×C, into the same; the arguments are those of the attention."""
        pre = self.normalize_before
        out, _ = self.self_attn(self.self_attn_layer_norm(x) if pre else x, shared, cache)
        x = self._add(out, x, self.self_attn_layer_norm)
        out = self._feed_forward(self.final_layer_norm(x) if pre else x)
        return self._add(out, x, self.final_layer_norm)

    def _add(self, out: Tensor, residual: Tensor, norm: nn.LayerNorm) -> Tensor:
        """The end of a block."""
        if self.normalize_before:
            return self.dropout_module(out, residual)
        if self.dropout_module.acts:
            return norm(self.dropout_module(out, residual))
        return add_and_normalise(out, residual, norm)

    def _feed_forward(self, x: Tensor) -> Tensor:
        if self.activation_fn is F.gelu:
            x = project(x, self.fc1, "gelu")
        else:
            x = self.activation_fn(project(x, self.fc1))
        return project(self.activation_dropout_module(x), self.fc2)
