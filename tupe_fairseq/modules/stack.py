"""The layers of an encoder or decoder: building, choice of backend, layerdrop, checkpointing."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..attention import (
    Layout,
    SharedAttention,
    TupeMultiheadAttention,
    choose_backend,
    needs_of,
    share_attention,
)
from ..errors import BackendError
from ..kernels.native import find_compiler
from ..position import LayerTerms, PositionEncoding
from ..position.random_numbers import own_random_numbers


class View(NamedTuple):
    """What a layer sees; layers with equal views share their positional score."""

    encoding: PositionEncoding
    window: int | None


def views_of(encoding: PositionEncoding, num_layers: int) -> list[View]:
    """The view of each layer."""
    layers = range(num_layers)
    return [View(encoding.at(index), encoding.window_at(index)) for index in layers]


class SharedByView:
    """What layers share in one forward pass, computed when the first of them runs.

    It is released when the last of them has it: without gradients, scores that differ by layer
    exist one after the other. Layers ask in their order, each once at most.

    Args:
        views: the view of each layer.
        make: computes what the layer of an index needs.
    """

    def __init__(self, views: list[View], make: Callable[[int], SharedAttention]):
        self.views, self._make = views, make
        self._made: dict[View, SharedAttention] = {}

    def __getitem__(self, index: int) -> SharedAttention:
        """What the layer of this index needs."""
        view = self.views[index]
        shared = self._made.pop(view, None) or self._make(index)
        if view in self.views[index + 1 :]:
            self._made[view] = shared
        return shared


class LayerStack(nn.ModuleList):
    """Layers over one position encoding.

    Each layer has an attribute `self_attn`. The encoding is not a submodule: it belongs to the
    model, and every method that reads it takes it as an argument.

    Args:
        encoding: the position encoding.
        build: makes a layer around its self-attention.
        num_layers: layers L.
        attention_dropout: on attention weights.
        backend: a registered backend or "auto".
        causal: whether later tokens are hidden; such a stack also decodes token by token.
        layerdrop: probability of skipping a layer in training (Fan et al. 2019).
        checkpoint_activations: recompute layers in the backward pass instead of storing them.
        compile_layers: run the layers through torch.compile.

    Raises:
        BackendError: the backend does not serve the encoding, or there is no compiler.
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
        for seen, window in views_of(encoding, num_layers):
            with own_random_numbers():
                terms = seen.build_layer_terms()
            attention = TupeMultiheadAttention(
                shape.embed_dim, shape.num_heads, attention_dropout, seen.score_terms, terms
            )
            self.append(build(attention))
            # An encoding that is not served is refused now, not in the first batch.
            needs = needs_of(
                seen,
                terms,
                window=window,
                compiled=compile_layers,
                causal=causal,
                other_queries=causal,
            )
            choose_backend(backend, needs, "cpu")
        if compile_layers:
            self._compile()

    def __getitem__(self, index: Any) -> Any:
        """A layer; a slice gives an nn.ModuleList."""
        return (
            nn.ModuleList(list(self)[index])
            if isinstance(index, slice)
            else super().__getitem__(index)
        )

    def share(
        self, encoding: PositionEncoding, x: Tensor, layout: Layout, causal: bool = True
    ) -> SharedByView:
        """What each layer needs for one forward pass, computed once for layers that see the same.

        Args:
            encoding: the position encoding.
            x: input of the first layer, B×T×C or N×C.
            layout: the tokens of the batch.
            causal: whether a causal stack hides later tokens.

        Raises:
            BackendError: the backend cannot run here; when the layer's part is computed.
        """
        views, terms = views_of(encoding, len(self)), self.terms()
        # Its dtype and device are read; x itself would stay in memory.
        like = x.new_empty(0)

        def make(index: int) -> SharedAttention:
            return share_attention(
                views[index].encoding,
                like,
                layout=layout,
                layer_terms=terms[index],
                window=views[index].window,
                backend=self.backend,
                compiled=self.compile_layers,
                causal=causal and self.causal,
            )

        return SharedByView(views, make)

    def active(self) -> Iterator[tuple[int, Callable[..., Any]]]:
        """Yield index and call of the active layers; in training layerdrop skips some."""
        for index, layer in enumerate(self):
            if self.training and self.layerdrop and torch.rand(()) < self.layerdrop:
                continue
            if self.training and self.checkpoint_activations:
                yield index, partial(checkpoint, layer, use_reentrant=False)
            else:
                yield index, layer

    def terms(self) -> list[LayerTerms | None]:
        """The encoding's terms in each layer."""
        layers: Iterable[Any] = self
        return [layer.self_attn.layer_terms for layer in layers]

    def _compile(self) -> None:
        """Compile layer by layer: the first takes as long as one, and serves all."""
        if find_compiler() is None:
            raise BackendError(
                "--compile-layers needs a C++ compiler, but there is no cc, gcc or clang: install "
                "one (on Debian and Ubuntu: apt install g++), or leave the flag out."
            )
        for layer in self:
            layer.compile()
