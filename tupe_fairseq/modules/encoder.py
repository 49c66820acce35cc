"""An encoder over vectors: positions, layers, norms."""

from collections.abc import Callable, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ..attention import LayerCache, Layout, Padding, SharedAttention
from ..errors import DataError
from ..kernels.dropout import Dropout
from ..position import PositionEncoding
from ..position.random_numbers import own_random_numbers
from .encoder_layer import EncoderLayer
from .stack import LayerStack

Observer = Callable[[Tensor, SharedAttention], tuple[Tensor, SharedAttention]]


class Encoder(nn.Module):
    """A Transformer encoder: a position encoding, then a stack of layers; inputs are B×T×C.

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
        **base: passed to the next class in the MRO.

    Raises:
        BackendError: the backend does not serve the encoding, or there is no compiler.
    """

    layer_class = EncoderLayer
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
        **base: Any,
    ):
        super().__init__(**base)
        width = embed_positions.shape.embed_dim
        self.embed_positions = embed_positions
        self.layernorm_embedding = nn.LayerNorm(width) if layernorm_embedding else None
        self.dropout_module = Dropout(dropout)
        feed_forward = (ffn_dim, activation_fn, dropout, activation_dropout, normalize_before)
        self.layers = LayerStack(
            embed_positions,
            lambda attention: self.layer_class(attention, *feed_forward),
            num_layers,
            attention_dropout,
            attention_backend,
            causal=causal,
            layerdrop=layerdrop,
            checkpoint_activations=checkpoint_activations,
            compile_layers=compile_layers,
        )
        self.layer_norm = nn.LayerNorm(width) if normalize_before else None

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
            DataError: more than max_positions tokens, or padding before a token. Not checked while
                torch traces a graph for any batch.
        """
        return self.encode(x, Padding.read(padding_mask), tokens)[0]

    def encode(
        self,
        x: Tensor,
        padding: Padding | None = None,
        tokens: Tensor | None = None,
        keep_states: bool = False,
        observe: Observer | None = None,
        backend: str | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """As `forward`; with keep_states also the first layer's input and each layer's output.

        observe is that of `run`; backend is used in this pass in place of the layers' own.
        """
        self._check(x, padding)
        # Causal attention needs no mask: tokens do not attend to padding at the end.
        layout = Layout.of(None if self.layers.causal else padding, *x.shape[:2])
        positions = self.embed_positions.for_pass(x.size(1), x.device)
        x = positions.embed(x, tokens, None if padding is None else padding.mask)
        x = self.normalise_and_drop(layout.pack(x))
        if padding is not None and x.dim() == 3:
            x = x.masked_fill(padding.mask[:, :, None], 0)
        shared = self.layers.share(positions, x, layout, backend=backend)
        return self.run(x, shared, layout, keep_states, observe=observe)

    def run(
        self,
        x: Tensor,
        shared: list[SharedAttention],
        layout: Layout,
        keep_states: bool = False,
        caches: Sequence[LayerCache] | None = None,
        observe: Observer | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """The layers and the final LayerNorm.

        Args:
            x: input of the first layer, B×T×C or N×C.
            shared: what each layer shares with others.
            layout: the tokens of the batch.
            keep_states: also return the first layer's input and each layer's output.
            caches: keys and values of earlier tokens in each layer, in incremental decoding.
            observe: called before each layer with its input and its part of `shared`; returns
                what the layer is called with.

        Returns:
            B×T×C, and the states.
        """
        states = [layout.unpack(x)] if keep_states else []
        for index, layer in self.layers.active():
            given = (x, shared[index])
            if observe is not None:
                given = observe(*given)
            x = layer(*given, *(() if caches is None else (caches[index],)))
            if keep_states:
                states.append(layout.unpack(x))
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        return layout.unpack(x), states

    def normalise_and_drop(self, x: Tensor) -> Tensor:
        """LayerNorm and dropout of the input, B×T×C or N×C."""
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return self.dropout_module(x)

    def check_length(self, length: int) -> None:
        """Refuse sequences of more tokens than there are positions, or of none.

        Raises:
            DataError: there are more, or none.
        """
        if length < 1:
            raise DataError("a sequence has no tokens: it needs at least one, such as <s>.")
        longest = self.embed_positions.shape.max_positions
        if length > longest:
            flag, remedy = self.length_limit
            raise DataError(
                f"a sequence has {length} tokens, but {flag} is {longest}: {remedy}, or train "
                "with more positions."
            )

    def _check(self, x: Tensor, padding: Padding | None) -> None:
        self.check_length(x.size(1))
        if padding is not None and padding.leading:
            raise DataError(
                "padding stands before the first token of a sequence: pad on the right "
                "(position 0 must hold <s>)."
            )
        if padding is not None and padding.scattered:
            raise DataError(
                "padding stands between the tokens of a sequence: move it behind the last one."
            )

    def apply(self, fn: Callable[[nn.Module], None]) -> "Encoder":
        """As nn.Module's. Initialisation of positions uses separate random numbers."""
        positional = [
            self.embed_positions,
            *(term for term in self.layers.terms() if term is not None),
        ]
        own = {module for part in positional for module in part.modules()}
        super().apply(lambda module: None if module in own else fn(module))
        with own_random_numbers():
            for part in positional:
                part.apply(fn)
        return self
