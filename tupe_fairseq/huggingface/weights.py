"""Attention weights of the layers in one forward pass."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import Tensor


@contextmanager
def collected(layers: Iterable[Any], wanted: bool) -> Iterator[list[Tensor]]:
    """Collect the attention weights of layers that run inside the block, B×H×T×S each.

    Args:
        layers: layers with an attribute `self_attn`, whose backend is `eager`.
        wanted: False to collect nothing.

    Yields:
        The list that they are added to.
    """
    found: list[Tensor] = []

    def ask(_: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, shared, *rest = inputs
        return (x, replace(shared, need_weights=True), *rest)

    def take(_: Any, __: Any, outputs: tuple[Tensor, Tensor]) -> None:
        found.append(outputs[1])

    hooks = []
    if wanted:
        for layer in layers:
            hooks.append(layer.self_attn.register_forward_pre_hook(ask))
            hooks.append(layer.self_attn.register_forward_hook(take))
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()
