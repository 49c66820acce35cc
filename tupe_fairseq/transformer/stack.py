"""Positions, layers and norms over vectors: encoders, decoders and language models."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..attention import CrossAttention, Layout, Padding, TupeMultiheadAttention
from ..base.errors import ConfigurationError, DataError
from ..base.tracing import refuse_jit, refuse_script
from ..kernels.dropout import Dropout
from ..position import PositionEncoding
from ..position.initial import isolated_rng
from .decoding import DecoderCache
from .forward_pass import PLAIN, Batch, Encoded, Pass
from .layer import TransformerLayer, build_norm
from .layer_options import USUAL, LayerOptions
from .layers import Layers


class TransformerStack(nn.Module):
    """A Transformer stack: a position encoding, then layers; inputs are B×T×C.

    It is an encoder, or with `causal` a language model or the decoder of a translation model.

    Args:
        embed_positions: the position encoding (fairseq's name for the module of positions).
        num_layers: layers L.
        ffn_dim: feed-forward width.
        activation_fn: activation of the feed-forward block.
        dropout: on the input and on the output of every block.
        attention_dropout: on attention weights.
        activation_dropout: after activation_fn.
        normalize_before: pre-LN layers and a final LayerNorm.
        layernorm_embedding: LayerNorm on the input, as BERT has.
        layerdrop: probability of skipping a layer in training (Fan et al. 2019).
        checkpoint_activations: recompute layers in the backward pass instead of storing them.
        attention_backend: a registered backend or "auto".
        compile_layers: run the layers through torch.compile.
        causal: mask later tokens, as a language model does.
        source_dim: width of the source that every layer attends to, or None without a source.
        final_norm: LayerNorm after the last layer; by default that of pre-LN layers.
        token_types: number of token types, each with an embedding; BERT calls them segments.
        layer_options: gates, norms and biases.
        **base: passed to the next class in the MRO.

    Raises:
        BackendError: the backend does not support the encoding, or there is no compiler.
        ConfigurationError: post-LN layers without the first norm.
    """

    layer_class = TransformerLayer
    #: The arguments that limit the length, and what to do about a longer sequence, for messages.
    length_limit = ("--max-positions (max_len)", "shorten it (--shorten-method truncate)")

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
        causal: bool = False,
        source_dim: int | None = None,
        final_norm: bool | None = None,
        token_types: int = 0,
        layer_options: LayerOptions = USUAL,
        **base: Any,
    ):
        super().__init__(**base)
        width, heads = embed_positions.shape.embed_dim, embed_positions.shape.num_heads
        self.embed_positions = embed_positions
        self.embed_token_types = nn.Embedding(token_types, width) if token_types else None
        self.layernorm_embedding = (
            build_norm(width, layer_options) if layernorm_embedding else None
        )
        self.dropout_module = Dropout(dropout)
        has_bias = layer_options.attention_bias
        feed_forward = (ffn_dim, activation_fn, dropout, activation_dropout, normalize_before)

        def build(attention: TupeMultiheadAttention) -> nn.Module:
            to_source = None
            if source_dim is not None:
                to_source = CrossAttention(width, heads, source_dim, attention_dropout, has_bias)
            return self.layer_class(attention, *feed_forward, to_source, layer_options)

        self.layers = Layers(
            embed_positions,
            build,
            num_layers,
            attention_dropout,
            attention_backend,
            has_bias,
            causal=causal,
            layerdrop=layerdrop,
            checkpoint_activations=checkpoint_activations,
            compile_layers=compile_layers,
        )
        final_norm = normalize_before if final_norm is None else final_norm
        self.layer_norm = build_norm(width, layer_options) if final_norm else None
        if not layer_options.first_attention_norm:
            if not normalize_before:
                raise ConfigurationError(
                    "--no-first-attention-norm is for pre-LN models: add "
                    "--encoder-normalize-before (normalize_before), or leave it out."
                )
            self.layers[0].self_attn_layer_norm = nn.Identity()

    def forward(
        self, x: Tensor, padding_mask: Tensor | None = None, tokens: Tensor | None = None
    ) -> Tensor:
        """Encode.

        Args:
            x: input vectors, B×T×C.
            padding_mask: B×T, True at padding, which must be at the end of each row.
            tokens: ids, B×T, for encodings that depend on the token.

        Returns:
            B×T×C; vectors at padding have no meaning.

        Raises:
            DataError: more than max_positions tokens, a mask of another shape or dtype, or padding
                before a token (if not traced).
        """
        if padding_mask is not None:
            got, wanted = (padding_mask.dtype, padding_mask.shape), (torch.bool, x.shape[:2])
            if got != wanted:
                raise DataError(
                    f"padding_mask is {got[0]} of shape {tuple(got[1])}, but must be {wanted[0]} "
                    f"of shape {tuple(wanted[1])}."
                )
        return self.encode(x, Padding.read(padding_mask), Pass(tokens)).x

    def encode(self, x: Tensor, padding: Padding | None = None, wanted: Pass = PLAIN) -> Encoded:
        """As `forward`, for padding that has been read."""
        return self.run(self.begin(x, padding, wanted), wanted)

    def begin(self, x: Tensor, padding: Padding | None, wanted: Pass) -> Batch:
        """What `run` reads, from input vectors, B×T×C."""
        self._check(x, padding)
        batch, length = x.shape[:2]
        if padding is None or (self.layers.causal and wanted.causal):
            # Causal attention needs no mask: tokens do not attend to padding at the end.
            layout = Layout(batch, length)
        elif wanted.source is not None:
            layout = Layout(batch, length, padding.mask)
        else:
            layout = Layout.of(padding, batch, length)
        x = self.add_types(x, wanted.types)
        mask = None if padding is None else padding.mask
        in_attention = mask if layout.padding_mask is None else layout.padding_mask
        positions = self.embed_positions.for_pass(length, x.device, in_attention)
        x = positions.embed(x, wanted.tokens, mask)
        x = self.normalise_and_drop(layout.pack(x))
        if layout.padding_mask is not None and x.dim() == 3:
            x = x.masked_fill(layout.padding_mask[:, :, None], 0)
        prepared = self.layers.prepare(positions, x, layout, wanted.causal, wanted.backend)
        return Batch(x, layout, prepared)

    def extend(self, x: Tensor, cache: DecoderCache, wanted: Pass = PLAIN) -> Encoded:
        """Encode the tokens that follow those in a cache, and store their keys and values.

        The first tokens are computed together, later ones one after the other. Positions are
        never drawn (`PositionEncoding.for_pass`).

        Raises:
            DataError: no tokens, or more than max_positions with those in the cache.
        """
        self.check_length(cache.length + x.size(1) if x.size(1) else 0)
        # The first tokens are one part.
        width, tokens = 1 if cache.length else x.size(1), wanted.tokens
        parts = self.add_types(x, wanted.types).split(width, 1)
        ids = [None] * len(parts) if tokens is None else tokens.split(width, 1)
        outputs = [self._extend(*part, cache, wanted) for part in zip(parts, ids, strict=True)]
        if len(outputs) == 1:
            return outputs[0]
        vectors, states, _ = zip(*outputs, strict=True)
        joined = [torch.cat(each, 1) for each in zip(*states, strict=True)]
        return Encoded(torch.cat(vectors, 1), joined)

    def _extend(
        self, x: Tensor, tokens: Tensor | None, cache: DecoderCache, wanted: Pass
    ) -> Encoded:
        """Encode tokens together: the first ones, or one that follows them."""
        layout = Layout(*x.shape[:2])
        x = self.normalise_and_drop(cache.embed(x, tokens))
        if x.size(1) == 1:
            prepared = cache.step(x, wanted.backend)
        else:
            positions, backend = self.embed_positions, wanted.backend
            prepared = self.layers.prepare(positions, x, layout, backend=backend)
        return self.run(Batch(x, layout, prepared), wanted, cache)

    def run(self, batch: Batch, wanted: Pass, cache: DecoderCache | None = None) -> Encoded:
        """The layers and the final LayerNorm; with a cache, of the tokens that follow it."""
        x, layout, prepared = batch
        rows = None if wanted.cells is None else layout.rows_of(wanted.cells)
        states, weights, is_last = [layout.unpack(x)] if wanted.keep_states else [], None, False
        for index, layer in self.layers.active():
            inputs = x, prepared[index]
            if wanted.observe is not None:
                inputs = wanted.observe(*inputs)
            is_last, aligned = index == len(self.layers) - 1, index == wanted.aligned
            in_layer = None if cache is None else cache.layers[index]
            read = rows if is_last else None
            x, to_source = layer(*inputs, in_layer, wanted.source, aligned, read)
            weights = to_source if aligned else weights
            if wanted.keep_states:
                states.append(layout.unpack(x))
        if rows is not None and not is_last:  # layerdrop has skipped the last layer
            x = x.flatten(0, -2).index_select(0, rows)
        x = x if self.layer_norm is None else self.layer_norm(x)
        return Encoded(layout.unpack(x) if rows is None else x, states, weights)

    def __prepare_scriptable__(self) -> None:
        """Called by torch.jit.script, for each module of a model."""
        refuse_script()

    def add_types(self, x: Tensor, types: Tensor | None) -> Tensor:
        """Input vectors with the embeddings of token types, if the encoder has any."""
        embed = self.embed_token_types
        if embed is None:
            return x
        return x + embed(x.new_zeros(1, dtype=torch.int64) if types is None else types)

    def normalise_and_drop(self, x: Tensor) -> Tensor:
        """LayerNorm and dropout of the input, B×T×C or N×C."""
        norm = self.layernorm_embedding
        return self.dropout_module(x if norm is None else norm(x))

    def check_length(self, length: int) -> None:
        """Raise a UsageError for more tokens than there are positions, for none, or in tracing."""
        refuse_jit()
        if length < 1:
            raise DataError("a sequence has no tokens: it needs at least one, such as <s>.")
        longest = self.embed_positions.shape.max_positions
        if length > longest and not self.embed_positions.any_length:
            flag, remedy = self.length_limit
            raise DataError(
                f"a sequence has {length} tokens, but {flag} is {longest}: {remedy}, or train "
                "with more positions."
            )

    def _check(self, x: Tensor, padding: Padding | None) -> None:
        self.check_length(x.size(1))
        if padding is not None and (padding.leading or padding.scattered):
            raise DataError("padding precedes a token: pad on the right (position 0 must be <s>).")

    def apply(self, fn: Callable[[nn.Module], None]) -> "TransformerStack":
        """As nn.Module's. Initialisation of positions uses separate random numbers."""
        terms = [term for term in self.layers.terms() if term is not None]
        positional = [self.embed_positions, *terms]
        apart = {module for part in positional for module in part.modules()}
        super().apply(lambda module: None if module in apart else fn(module))
        with isolated_rng():
            for part in positional:
                part.apply(fn)
        return self
