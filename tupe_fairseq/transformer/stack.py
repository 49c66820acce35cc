"""Positions, layers and norms over vectors: encoders, decoders and language models."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..attention import Layout, Padding
from ..base.errors import DataError
from ..base.tracing import refuse_jit, refuse_script
from ..kernels.dropout import Dropout
from ..position import PositionEncoding
from ..position.initial import isolated_rng
from .config import StackConfig
from .decoding import DecoderCache
from .forward_pass import PLAIN, Batch, Encoded, Pass
from .layer import TransformerLayer, build_norm
from .layers import Layers


class TransformerStack(nn.Module):
    """A Transformer stack: a position encoding, then layers; inputs are B×T×C.

    It is an encoder, or with `causal` a language model or the decoder of a translation model.

    Args:
        embed_positions: the position encoding (fairseq's name for the module of positions).
        config: sizes and options.
        **base: passed to the next class in the MRO.

    Raises:
        BackendError: the backend does not support the encoding, or there is no compiler.
    """

    layer_class = TransformerLayer
    #: The arguments that limit the length, and what to do about a longer sequence, for messages.
    length_limit = ("--max-positions (max_len)", "shorten it (--shorten-method truncate)")

    def __init__(self, embed_positions: PositionEncoding, config: StackConfig, **base: Any):
        super().__init__(**base)
        width = embed_positions.shape.embed_dim
        types = config.token_types
        options = config.layer_options
        self.embed_positions = embed_positions
        self.embed_token_types = nn.Embedding(types, width) if types else None
        self.layernorm_embedding = (
            build_norm(width, options) if config.layernorm_embedding else None
        )
        self.dropout_module = Dropout(config.dropout)
        self.layers = Layers(embed_positions, config, self.layer_class)
        self.layer_norm = build_norm(width, options) if config.has_final_norm else None
        if not options.first_attention_norm:
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
            got = (padding_mask.dtype, padding_mask.shape)
            wanted = (torch.bool, x.shape[:2])
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
        if padding is None or (self.layers.config.causal and wanted.causal):
            # Causal attention needs no mask: tokens do not attend to padding at the end.
            layout = Layout(batch, length)
        elif wanted.source is not None:
            layout = Layout(batch, length, padding.mask)
        else:
            packs = padding.lengths is not None and self.layers.take_packed(
                self.embed_positions, x, wanted.causal, wanted.backend
            )
            layout = Layout.of(padding, batch, length, packs=packs)
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

        The first tokens are computed together, later ones one after the other.

        Raises:
            DataError: no tokens, or more than max_positions with those in the cache.
        """
        self.check_length(cache.length + x.size(1) if x.size(1) else 0)
        # The first tokens are one part.
        width = 1 if cache.length else x.size(1)
        tokens = wanted.tokens
        parts = x.split(width, 1)
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
            prepared = cache.step(x)
        else:
            prepared = self.layers.prepare(self.embed_positions, x, layout)
        return self.run(Batch(x, layout, prepared), wanted, cache)

    def run(self, batch: Batch, wanted: Pass, cache: DecoderCache | None = None) -> Encoded:
        """The layers and the final LayerNorm; with a cache, of the tokens that follow it."""
        x, layout, prepared = batch
        read = None if wanted.read is None else layout.tokens_at(wanted.read)
        states = [layout.unpack(x)] if wanted.keep_states else []
        weights = None
        is_last = False
        for index, layer in self.layers.active():
            shared = prepared[index]
            if wanted.observe is not None:
                x, shared = wanted.observe(x, shared)
            is_last = index == len(self.layers) - 1
            aligned = index == wanted.aligned
            in_layer = None if cache is None else cache.layers[index]
            read_now = read if is_last else None
            x, to_source = layer(x, shared, in_layer, wanted.source, aligned, read_now)
            weights = to_source if aligned else weights
            if wanted.keep_states:
                states.append(layout.unpack(x))
        if read is not None and not is_last:  # layerdrop has skipped the last layer
            x = x.flatten(0, -2).index_select(0, read)
        x = x if self.layer_norm is None else self.layer_norm(x)
        return Encoded(layout.unpack(x) if read is None else x, states, weights)

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
