"""A stack of layers over vectors; what the fairseq model and the standalone encoder both are."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..attention import Layout, TupeMultiheadAttention, choose_backend, share_attention
from ..errors import UsageError
from ..kernels.dropout import Dropout
from ..kernels.native import find_compiler
from ..position import LayerTerms, PositionEncoding
from ..position.random_numbers import own_random_numbers
from .encoder_layer import EncoderLayer


class Encoder(nn.Module):
    """Positions, layers, norms. Shapes: see `position/base.py`; batch first throughout.

    Args:
        embed_positions: the position encoding (fairseq's name for the module of positions).
        num_layers: layers L.
        ffn_dim: feed-forward width.
        activation_fn: in the feed-forward block.
        dropout: on the input and on the output of every block.
        attention_dropout: on attention weights.
        activation_dropout: after activation_fn.
        normalize_before: pre-LN layers and a final LayerNorm.
        layernorm_embedding: LayerNorm on the input, as BERT has.
        layerdrop: probability of skipping a layer in training (Fan et al. 2019).
        checkpoint_activations: recompute layers in the backward pass instead of storing them.
        attention_backend: a registered backend or "auto".
        compile_layers: run the layers through torch.compile.

    Raises:
        UsageError: the backend cannot serve the encoding, or there is nothing to compile with.
    """

    def __init__(
        self,
        embed_positions: PositionEncoding,
        num_layers: int,
        ffn_dim: int,
        activation_fn: Callable[[Tensor], Tensor] = F.gelu,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        activation_dropout: float = 0.0,
        normalize_before: bool = False,
        layernorm_embedding: bool = False,
        layerdrop: float = 0.0,
        checkpoint_activations: bool = False,
        attention_backend: str = "auto",
        compile_layers: bool = False,
    ):
        # Not super(): fairseq's class of encoders, a base of one of ours, takes a dictionary.
        nn.Module.__init__(self)
        shape = embed_positions.shape
        self.embed_positions = embed_positions
        self.layernorm_embedding = nn.LayerNorm(shape.embed_dim) if layernorm_embedding else None
        self.dropout_module = Dropout(dropout)
        self.layers = nn.ModuleList(
            EncoderLayer(
                TupeMultiheadAttention(
                    shape.embed_dim,
                    shape.num_heads,
                    attention_dropout,
                    embed_positions.score_terms,
                    self._build_layer_terms(),
                ),
                ffn_dim,
                activation_fn,
                dropout,
                activation_dropout,
                normalize_before,
            )
            for _ in range(num_layers)
        )
        self.layer_norm = nn.LayerNorm(shape.embed_dim) if normalize_before else None
        self.layerdrop = layerdrop
        self.checkpoint_activations = checkpoint_activations
        self.attention_backend = attention_backend
        # An encoding or backend that cannot be served is refused now, not in the first batch.
        choose_backend(
            attention_backend, embed_positions, self._layer_terms(), compiled=compile_layers
        )
        self.compile_layers = compile_layers
        if compile_layers:
            self._compile()

    def forward(
        self, x: Tensor, padding_mask: Tensor | None = None, tokens: Tensor | None = None
    ) -> Tensor:
        """Encode.

        Args:
            x: input vectors, B×T×C.
            padding_mask: B×T, True at padding, which must lie at the end of each row.
            tokens: ids of the words, B×T, for encodings that depend on the word.

        Returns:
            B×T×C.

        Raises:
            UsageError: more than max_positions tokens, or padding before the first token.
        """
        return self.encode(x, padding_mask, tokens)[0]

    def encode(
        self,
        x: Tensor,
        padding_mask: Tensor | None = None,
        tokens: Tensor | None = None,
        keep_states: bool = False,
    ) -> tuple[Tensor, list[Tensor]]:
        """As `forward`; with keep_states also the first layer's input and each layer's output."""
        self._check(x, padding_mask)
        layout = Layout.of(padding_mask, *x.shape[:2])
        x = self._embed(x, layout, padding_mask, tokens)
        shared = share_attention(
            self.embed_positions,
            x,
            layout=layout,
            layer_terms=self._layer_terms(),
            backend=self.attention_backend,
            compiled=self.compile_layers,
        )
        states = [layout.unpack(x)] if keep_states else []
        for layer in self.layers:
            if self.training and self.layerdrop and torch.rand(()) < self.layerdrop:
                continue
            if self.checkpoint_activations and self.training:
                x = checkpoint(layer, x, shared, use_reentrant=False)
            else:
                x = layer(x, shared)
            if keep_states:
                states.append(layout.unpack(x))
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        return layout.unpack(x), states

    def _embed(
        self, x: Tensor, layout: Layout, padding_mask: Tensor | None, tokens: Tensor | None
    ) -> Tensor:
        """The input of the layers: N×C where the layout takes padding out, else B×T×C."""
        x = layout.pack(self.embed_positions.embed(x, tokens, padding_mask))
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        x = self.dropout_module(x)
        if padding_mask is None or x.dim() == 2:
            return x
        return x.masked_fill(padding_mask[:, :, None], 0)

    def apply(self, fn: Callable[[nn.Module], None]) -> Encoder:
        """As nn.Module's; initialisations of positions draw random numbers of their own."""
        terms = [layer.self_attn.layer_terms for layer in self.layers]
        positional = [self.embed_positions, *(term for term in terms if term is not None)]
        own = {module for part in positional for module in part.modules()}
        super().apply(lambda module: None if module in own else fn(module))
        with own_random_numbers():
            for part in positional:
                part.apply(fn)
        return self

    def _compile(self) -> None:
        """Layer by layer: one is compiled in the time of one, and serves them all."""
        if find_compiler() is None:
            raise UsageError(
                "--compile-layers needs a C++ compiler, but there is no cc, gcc or clang: install "
                "one (on Debian and Ubuntu: apt install g++), or leave the flag out."
            )
        for layer in self.layers:
            layer.compile()

    def _build_layer_terms(self) -> LayerTerms | None:
        with own_random_numbers():
            return self.embed_positions.build_layer_terms()

    def _layer_terms(self) -> LayerTerms | None:
        """One layer's terms, which stand for all when a backend is chosen."""
        return self.layers[0].self_attn.layer_terms if self.layers else None

    def _check(self, x: Tensor, padding_mask: Tensor | None) -> None:
        longest = self.embed_positions.shape.max_positions
        if x.size(1) > longest:
            raise UsageError(
                f"a sequence has {x.size(1)} tokens, but --max-positions (max_len) is {longest}: "
                "shorten it (--shorten-method truncate), or train with more positions."
            )
        if padding_mask is not None and padding_mask[:, :1].any():
            raise UsageError(
                "padding stands before the first token of a sequence: pad on the right "
                "(position 0 must hold <s>)."
            )
