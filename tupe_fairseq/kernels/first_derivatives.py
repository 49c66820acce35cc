"""Gradients that cannot be differentiated again, and say so."""

from typing import Any

import torch
from torch import Tensor

from ..base.errors import BackendError


def refuse_second(
    gradients: tuple[Tensor | None, ...], inputs: tuple[Tensor, ...], backend: str
) -> tuple[Tensor | None, ...]:
    """Gradients whose own gradient is an error, not zero.

    torch's `once_differentiable` is for this, but leaves out in silence what reaches the inputs of
    the forward pass alone.

    Args:
        gradients: what the backward pass returns.
        inputs: all that they were computed from.
        backend: named by the error.
    """
    if not torch.is_grad_enabled():
        return gradients
    return tuple(g if g is None else _First.apply(g, backend, *inputs) for g in gradients)


class _First(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gradient: Tensor, backend: str, *inputs: Tensor) -> Tensor:
        ctx.backend = backend
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise BackendError(
            f"--attention-backend is {ctx.backend!r}, but it has no second derivatives; use eager "
            "(in transformers, attn_implementation='eager')."
        )
