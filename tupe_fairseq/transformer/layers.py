"""The layers of an encoder or decoder: building, plans, layerdrop, checkpointing."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..attention import LayerPlan, Layout, Prepared, TupeMultiheadAttention, choose_backend
from ..base.errors import BackendError
from ..kernels.native import find_compiler
from ..position import LayerTerms, PositionEncoding
from ..position.initial import isolated_rng


class Layers(nn.ModuleList):
    """Layers over one position encoding.

    `build` makes a layer around its self-attention, which becomes its attribute `self_attn`. The
    other arguments are those of `TransformerStack`. The encoding is not a submodule: it belongs
    to the model, and every method that reads it takes it as an argument.

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
        attention_bias: bool = True,
        causal: bool = False,
        layerdrop: float = 0.0,
        checkpoint_activations: bool = False,
        compile_layers: bool = False,
    ):
        super().__init__()
        self.backend, self.causal, self.compile_layers = backend, causal, compile_layers
        self.layerdrop, self.checkpoint_activations = layerdrop, checkpoint_activations
        #: What each layer does with positions.
        self.plans: list[LayerPlan] = []
        firsts: dict[tuple[PositionEncoding, int | None], int] = {}
        shape = encoding.shape
        for index in range(num_layers):
            seen, window = encoding.at(index), shape.window_at(index)
            with isolated_rng():
                terms = seen.build_layer_terms()
            attention = TupeMultiheadAttention(
                shape.embed_dim,
                shape.num_heads,
                attention_dropout,
                seen.score_terms,
                terms,
                attention_bias,
            )
            self.append(build(attention))
            first = firsts.setdefault((seen, window), index)
            plan = LayerPlan.of(seen, terms, window, first)
            # An unsupported encoding is an error now, not in the first batch.
            choose_backend(backend, plan.features(causal, compile_layers))
            self.plans.append(plan)
        if compile_layers:
            self._compile()

    def __getitem__(self, index: Any) -> Any:
        """A layer; a slice gives an nn.ModuleList."""
        if isinstance(index, slice):
            return nn.ModuleList(list(self)[index])
        return super().__getitem__(index)

    def prepare(
        self,
        encoding: PositionEncoding,
        x: Tensor,
        layout: Layout,
        causal: bool = True,
        backend: str | None = None,
    ) -> list[Prepared]:
        """What each layer shares with others in one forward pass, in the order of the layers.

        `x` is the input of the first layer, B×T×C or N×C; for the others see `Pass`.

        Raises:
            BackendError: the backend cannot run here.
        """
        causal, backend = causal and self.causal, backend or self.backend
        return self.shared(
            lambda plan: plan.prepare(
                encoding.at(plan.first), x, layout, backend, causal, self.compile_layers
            )
        )

    def shared(self, prepare: Callable[[LayerPlan], Prepared]) -> list[Prepared]:
        """What each layer shares; `prepare` is called for the first of those that share it."""
        prepared: dict[int, Prepared] = {}
        for plan in self.plans:
            if plan.first not in prepared:
                prepared[plan.first] = prepare(plan)
        return [prepared[plan.first] for plan in self.plans]

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
