"""The layers of an encoder or decoder: building, choice of backend, layerdrop, checkpointing."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..attention import (
    Layout,
    SharedAttention,
    TupeMultiheadAttention,
    choose_backend,
    required_features,
    share_attention,
)
from ..errors import BackendError
from ..kernels.native import find_compiler
from ..position import LayerTerms, PositionEncoding
from ..position.tables import isolated_rng

#: What one layer sees of positions: its encoding, and its window or None. Layers that see the same
#: share a bias.
LayerPositions = tuple[PositionEncoding, int | None]


def positions_of_layers(encoding: PositionEncoding, num_layers: int) -> list[LayerPositions]:
    """What each layer sees."""
    return [(encoding.at(index), encoding.shape.window_at(index)) for index in range(num_layers)]


def share_once(
    layers: list[LayerPositions], share: Callable[[int], SharedAttention]
) -> list[SharedAttention]:
    """What each layer shares; `share` is called for the first of those that see the same."""
    made: dict[LayerPositions, SharedAttention] = {}
    for index, seen in enumerate(layers):
        if seen not in made:
            made[seen] = share(index)
    return [made[seen] for seen in layers]


class LayerStack(nn.ModuleList):
    """Layers over one position encoding.

    `build` makes a layer around its self-attention, which becomes its attribute `self_attn`. The
    other arguments are those of `Encoder`. The encoding is not a submodule: it belongs to the
    model, and every method that reads it takes it as an argument.

    Raises:
        BackendError: the backend does not support the encoding, or there is no compiler.
    """

    def __init__(
        self,
        encoding: PositionEncoding,
        build: Callable[[TupeMultiheadAttention], nn.Module],
        num_layers: int,
        attention_dropout: float = 0.0,
        backend: str = "auto",
        causal: bool = False,
        layerdrop: float = 0.0,
        checkpoint_activations: bool = False,
        compile_layers: bool = False,
    ):
        super().__init__()
        self.backend, self.causal, self.compile_layers = backend, causal, compile_layers
        self.layerdrop, self.checkpoint_activations = layerdrop, checkpoint_activations
        shape = encoding.shape
        for seen, window in positions_of_layers(encoding, num_layers):
            with isolated_rng():
                terms = seen.build_layer_terms()
            attention = TupeMultiheadAttention(
                shape.embed_dim, shape.num_heads, attention_dropout, seen.score_terms, terms
            )
            self.append(build(attention))
            # An unsupported encoding is an error now, not in the first batch.
            features = required_features(
                seen, terms, window=window, compiled=compile_layers, decoder=causal
            )
            choose_backend(backend, features)
        if compile_layers:
            self._compile()

    def __getitem__(self, index: Any) -> Any:
        """A layer; a slice gives an nn.ModuleList."""
        if isinstance(index, slice):
            return nn.ModuleList(list(self)[index])
        return super().__getitem__(index)

    def share(
        self,
        encoding: PositionEncoding,
        x: Tensor,
        layout: Layout,
        causal: bool = True,
        backend: str | None = None,
    ) -> list[SharedAttention]:
        """What each layer shares with others in one forward pass, in the order of the layers.

        `x` is the input of the first layer, B×T×C or N×C; for the others see `Encoder.encode`.

        Raises:
            BackendError: the backend cannot run here.
        """
        layers, terms = positions_of_layers(encoding, len(self)), self.terms()

        def share(index: int) -> SharedAttention:
            seen, window = layers[index]
            return share_attention(
                seen,
                x,
                layout,
                layer_terms=terms[index],
                window=window,
                backend=backend or self.backend,
                compiled=self.compile_layers,
                causal=causal and self.causal,
            )

        return share_once(layers, share)

    def active(self) -> Iterator[tuple[int, Callable[..., Any]]]:
        """Yield index and call of the active layers; in training layerdrop skips some."""
        for index, layer in enumerate(self):
            if self.training and self.layerdrop and torch.rand(()) < self.layerdrop:
                continue
            if self.training and self.checkpoint_activations:
                yield index, partial(checkpoint, layer, use_reentrant=False)
            else:
                yield index, layer

    def attentions(self) -> list[TupeMultiheadAttention]:
        """The self-attention of each layer."""
        layers: Iterable[Any] = self
        return [layer.self_attn for layer in layers]

    def terms(self) -> list[LayerTerms | None]:
        """The encoding's terms in each layer."""
        return [attention.layer_terms for attention in self.attentions()]

    def _compile(self) -> None:
        """Compile layer by layer: the first takes as long as one, and serves all."""
        if find_compiler() is None:
            raise BackendError(
                "--compile-layers needs a C++ compiler, but there is no cc, gcc or clang: install "
                "one (on Debian and Ubuntu: apt install g++), or leave the flag out."
            )
        for layer in self:
            layer.compile()
