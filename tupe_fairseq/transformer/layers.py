"""The layers of an encoder or decoder: building, plans, layerdrop, checkpointing."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..attention import (
    ATTENTION_BACKENDS,
    LayerPlan,
    Layout,
    Prepared,
    TupeMultiheadAttention,
    choose_backend,
)
from ..base.errors import BackendError
from ..kernels.native import find_compiler
from ..position import LayerTerms, PositionEncoding
from ..position.initial import isolated_rng
from .compiling import FASTER_ON, decide
from .config import StackConfig


class Layers(nn.ModuleList):
    """Layers over one position encoding.

    The encoding is not a submodule: it belongs to the model, and every method that reads it takes
    it as an argument.

    Args:
        encoding: the position encoding.
        config: of the stack.
        layer_class: makes a layer of its self-attention and the config.

    Raises:
        BackendError: the backend does not support the encoding, or there is no compiler.
    """

    def __init__(
        self,
        encoding: PositionEncoding,
        config: StackConfig,
        layer_class: Callable[[TupeMultiheadAttention, StackConfig], nn.Module],
    ):
        super().__init__()
        self.config = config
        #: Whether the layers are compiled; None: it is decided in the first pass in training.
        self.compiled = config.compile_layers
        #: What each layer does with positions.
        self.plans: list[LayerPlan] = []
        firsts: dict[tuple[PositionEncoding, int | None], int] = {}
        shape = encoding.shape
        for index in range(config.num_layers):
            seen = encoding.at(index)
            window = shape.window_at(index)
            with isolated_rng():
                terms = seen.build_layer_terms()
            attention = TupeMultiheadAttention(
                shape.embed_dim,
                shape.num_heads,
                config.attention_dropout,
                seen.score_terms,
                terms,
                config.layer_options.attention_bias,
            )
            self.append(layer_class(attention, config))
            first = firsts.setdefault((seen, window), index)
            plan = LayerPlan.of(seen, terms, window, first)
            # An unsupported encoding is an error now, not in the first batch.
            features = plan.features(config.causal, bool(self.compiled))
            choose_backend(config.attention_backend, features)
            self.plans.append(plan)
        if self.compiled:
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
        config = self.config
        causal = causal and config.causal
        backend = backend or config.attention_backend
        compiled = self._are_compiled(x.device.type)
        prepared = self.shared(
            lambda plan: plan.prepare(
                encoding.at(plan.first), x, layout, backend, causal, compiled
            )
        )
        if not (self.training and config.attention_dropout):
            return prepared
        numbers = prepared[0].backend.random_numbers(prepared[0], len(prepared))
        if numbers is None:
            return prepared
        return [
            replace(each, random=of_layer)
            for each, of_layer in zip(prepared, numbers.unbind(), strict=True)
        ]

    def take_packed(
        self, encoding: PositionEncoding, x: Tensor, causal: bool, backend: str | None
    ) -> bool:
        """Whether all layers attend to packed tokens of x, B×T×C; arguments as in `prepare`."""
        config = self.config
        how = backend or config.attention_backend, causal and config.causal
        compiled = self._are_compiled(x.device.type)
        return all(
            plan.takes_packed(encoding.at(plan.first), x, *how, compiled) for plan in self.plans
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
            if self.training and self.config.layerdrop and torch.rand(()) < self.config.layerdrop:
                continue
            if self.training and self.config.checkpoint_activations:
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

    def _are_compiled(self, device: str) -> bool:
        """Whether the layers are compiled, which the first pass in training may decide."""
        is_open = self.compiled is None and self.training and device in FASTER_ON
        # Otherwise the user compiles the whole model.
        if is_open and not torch.compiler.is_compiling():
            self.compiled = decide(self, device, self._untraceable())
            if self.compiled:
                self._compile()
        return bool(self.compiled)

    def _untraceable(self) -> str | None:
        """Why torch.compile cannot trace the backend that the user has chosen, or None."""
        name = self.config.attention_backend
        causal = self.config.causal
        if name == "auto":
            return None
        backend = ATTENTION_BACKENDS[name]
        reasons = (backend.unsupported(plan.features(causal, True)) for plan in self.plans)
        return next((f"of {name}, {each}" for each in reasons if each), None)

    def _compile(self) -> None:
        """Compile layer by layer: the first takes as long as one, and serves all."""
        if find_compiler() is None:
            raise BackendError(
                "--compile-layers needs a C++ compiler, but there is no cc, gcc or clang: install "
                "one (on Debian and Ubuntu: apt install g++), or leave the flag out."
            )
        for layer in self:
            layer.compile()
