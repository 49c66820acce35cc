"""Positions, layers and norms over vectors: encoders, decoders and language models."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..attention import (
    CrossAttention,
    LayerCache,
    Layout,
    Padding,
    SharedAttention,
    Source,
    TupeMultiheadAttention,
)
from ..errors import DataError
from ..kernels.dropout import Dropout
from ..position import PositionEncoding
from ..position.tables import isolated_rng
from ..tracing import refuse_jit
from .cache import DecoderCache
from .layer import TransformerLayer
from .stack import LayerStack

Observer = Callable[[Tensor, SharedAttention], tuple[Tensor, SharedAttention]]


class Encoded(NamedTuple):
    """The output of a stack of layers.

    Attributes:
        x: B×T×C, or M×C of the tokens that are read.
        states: the first layer's input and each layer's output, B×T×C, where asked for.
        weights: of one layer's attention to the source, B×H×T×S, where asked for.
    """

    x: Tensor
    states: list[Tensor]
    weights: Tensor | None = None


class Encoder(nn.Module):
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
        causal: hide later tokens, as a language model does.
        source_dim: width of the source that every layer attends to, or None without a source.
        final_norm: LayerNorm after the last layer; by default that of pre-LN layers.
        token_types: number of token types, each with an embedding; BERT calls them segments.
        **base: passed to the next class in the MRO.

    Raises:
        BackendError: the backend does not support the encoding, or there is no compiler.
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
        **base: Any,
    ):
        super().__init__(**base)
        width, heads = embed_positions.shape.embed_dim, embed_positions.shape.num_heads
        self.embed_positions = embed_positions
        self.embed_token_types = nn.Embedding(token_types, width) if token_types else None
        self.layernorm_embedding = nn.LayerNorm(width) if layernorm_embedding else None
        self.dropout_module = Dropout(dropout)
        feed_forward = (ffn_dim, activation_fn, dropout, activation_dropout, normalize_before)

        def build(attention: TupeMultiheadAttention) -> nn.Module:
            to_source = None
            if source_dim is not None:
                to_source = CrossAttention(width, heads, source_dim, attention_dropout)
            return self.layer_class(attention, *feed_forward, to_source)

        self.layers = LayerStack(
            embed_positions,
            build,
            num_layers,
            attention_dropout,
            attention_backend,
            causal=causal,
            layerdrop=layerdrop,
            checkpoint_activations=checkpoint_activations,
            compile_layers=compile_layers,
        )
        final_norm = normalize_before if final_norm is None else final_norm
        self.layer_norm = nn.LayerNorm(width) if final_norm else None

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
            DataError: more than max_positions tokens, or padding before a token (if not traced).
        """
        return self.encode(x, Padding.read(padding_mask), tokens).x

    def encode(
        self,
        x: Tensor,
        padding: Padding | None = None,
        tokens: Tensor | None = None,
        causal: bool = True,
        backend: str | None = None,
        source: Source | None = None,
        types: Tensor | None = None,
        cells: Tensor | None = None,
        **how: Any,
    ) -> Encoded:
        """As `forward`, for padding that has been read.

        `types` are those of the tokens, B×T; by default all have type 0.
        With `causal=False`, a causal stack does not hide later tokens in this pass. `backend` is
        used in place of that of the layers. The sequences of `source` are those of x. It and
        further arguments are passed to `run`. With `cells`, indices b·T + t of M tokens, the
        output is that of these tokens alone, M×C.
        """
        self._check(x, padding)
        batch, length = x.shape[:2]
        if padding is None or (self.layers.causal and causal):
            # Causal attention needs no mask: tokens do not attend to padding at the end.
            layout = Layout(batch, length)
        elif source is not None:
            layout = Layout(batch, length, padding.mask)
        else:
            layout = Layout.of(padding, batch, length)
        x = self.add_types(x, types)
        positions = self.embed_positions.for_pass(length, x.device)
        x = positions.embed(x, tokens, None if padding is None else padding.mask)
        x = self.normalise_and_drop(layout.pack(x))
        if layout.padding_mask is not None and x.dim() == 3:
            x = x.masked_fill(layout.padding_mask[:, :, None], 0)
        shared = self.layers.share(positions, x, layout, causal, backend)
        rows = None if cells is None else layout.rows_of(cells)
        return self.run(x, shared, layout, source=source, rows=rows, **how)

    def extend(
        self,
        x: Tensor,
        cache: DecoderCache,
        tokens: Tensor | None = None,
        backend: str | None = None,
        types: Tensor | None = None,
        **how: Any,
    ) -> Encoded:
        """Encode the tokens that follow those in a cache, and store their keys and values.

        The first tokens are computed together, later ones one after the other. Positions are
        never drawn (`PositionEncoding.for_pass`). The arguments are those of `encode`.

        Raises:
            DataError: no tokens, or more than max_positions with those in the cache.
        """
        self.check_length(cache.length + x.size(1) if x.size(1) else 0)
        width = 1 if cache.length else x.size(1)
        ids = [None] * x.size(1) if tokens is None else tokens.split(width, 1)
        found = []
        for part, own in zip(self.add_types(x, types).split(width, 1), ids, strict=False):
            layout = Layout(*part.shape[:2])
            part = self.normalise_and_drop(cache.embed(part, own))
            if part.size(1) == 1:
                shared = cache.step(part, backend)
            else:
                shared = self.layers.share(self.embed_positions, part, layout, backend=backend)
            found.append(self.run(part, shared, layout, caches=cache.layers, **how))
        if len(found) == 1:
            return found[0]
        outputs, states, _ = zip(*found, strict=True)
        joined = [torch.cat(each, 1) for each in zip(*states, strict=True)]
        return Encoded(torch.cat(outputs, 1), joined)

    def add_types(self, x: Tensor, types: Tensor | None) -> Tensor:
        """Input vectors with the embeddings of token types, if the encoder has any."""
        embed = self.embed_token_types
        if embed is None:
            return x
        return x + embed(x.new_zeros(1, dtype=torch.int64) if types is None else types)

    def run(
        self,
        x: Tensor,
        shared: list[SharedAttention],
        layout: Layout,
        keep_states: bool = False,
        caches: list[LayerCache] | None = None,
        observe: Observer | None = None,
        source: Source | None = None,
        aligned: int | None = None,
        rows: Tensor | None = None,
    ) -> Encoded:
        """The layers and the final LayerNorm.

        Args:
            x: input of the first layer, B×T×C or N×C.
            shared: what each layer shares with others.
            layout: the tokens of the batch.
            keep_states: also return the first layer's input and each layer's output.
            caches: keys and values of earlier tokens by layer, in incremental decoding.
            observe: called before each layer with its input and its part of `shared`; returns
                what the layer is called with.
            source: what the layers attend to, in the decoder of a translation model.
            aligned: the layer whose attention to the source is returned, or None.
            rows: indices of the tokens of x whose output is wanted; by default all.
        """
        states, weights, is_last = [layout.unpack(x)] if keep_states else [], None, False
        for index, layer in self.layers.active():
            given = (x, shared[index]) if observe is None else observe(x, shared[index])
            cache = None if caches is None else caches[index]
            is_last = index == len(self.layers) - 1
            x, found = layer(*given, cache, source, index == aligned, rows if is_last else None)
            weights = found if index == aligned else weights
            if keep_states:
                states.append(layout.unpack(x))
        if rows is not None and not is_last:  # layerdrop has skipped the last layer
            x = x.flatten(0, -2).index_select(0, rows)
        x = x if self.layer_norm is None else self.layer_norm(x)
        return Encoded(layout.unpack(x) if rows is None else x, states, weights)

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
            raise DataError(
                "padding stands before a token: pad on the right (position 0 must hold <s>)."
            )

    def apply(self, fn: Callable[[nn.Module], None]) -> "Encoder":
        """As nn.Module's. Initialisation of positions uses separate random numbers."""
        terms = [term for term in self.layers.terms() if term is not None]
        positional = [self.embed_positions, *terms]
        own = {module for part in positional for module in part.modules()}
        super().apply(lambda module: None if module in own else fn(module))
        with isolated_rng():
            for part in positional:
                part.apply(fn)
        return self
