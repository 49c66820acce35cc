"""The precision in which the layers of an optimized encoder compute.

In "bf16" and "int8" the layers are copies for inference, with other linear layers.
"""

import copy
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..base.errors import ConfigurationError
from ..kernels.linear import PackedLinear
from ..kernels.quantized import QuantizedLinear
from ..position.deberta import DebertaPosition
from .changes import changed, is_own
from .optimized import Hooks, mapped
from .optimized_attention import DisentangledSelfAttention

#: Values of `precision`.
PRECISIONS = ("fp32", "bf16", "int8")


class Cast:
    """Hooks that change the dtype of what layers get, and back of what they return.

    Args:
        inside: the dtype of the layers.
        outside: that of embeddings and outputs.
    """

    def __init__(self, inside: torch.dtype, outside: torch.dtype):
        self.inside, self.outside = inside, outside

    def before(self, module: nn.Module, args: Any, named: dict[str, Any]) -> Any:
        """What the layers get."""
        named = {name: mapped(value, self._enter) for name, value in named.items()}
        return mapped(args, self._enter), named

    def after(self, module: nn.Module, args: Any, out: Any) -> Any:
        """What the layers have returned."""
        return mapped(out, self._leave)

    def _enter(self, x: Tensor) -> Tensor:
        return x.to(self.inside) if x.is_floating_point() else x

    def _leave(self, x: Tensor) -> Tensor:
        return x.to(self.outside) if x.is_floating_point() else x


@torch.no_grad()
def convert(encoder: Any, hooks: Hooks, precision: str) -> None:
    """Let the layers compute in another precision, for inference; embeddings stay.

    "bf16" stores and computes the layers in bfloat16. "int8" stores each row of the matrices in
    8 bits with a scale, and quantizes what they multiply when they run. torch's quantized products
    do this: they need no compiler, whereas torchao's int8 on CPUs needs torch.compile.

    Raises:
        ConfigurationError: the layers have been converted already.
    """
    if precision == hooks.precision:
        return
    if hooks.precision != "fp32":
        raise ConfigurationError(
            f"precision is {precision!r}, but the model's layers are {hooks.precision} already: "
            "optimize the original model."
        )
    # torch quantizes fp32 alone, and the model may be in bf16.
    inside = torch.bfloat16 if precision == "bf16" else torch.float32
    for name in hooks.parts:
        part = copy.deepcopy(getattr(encoder, name), {id(hooks): hooks})
        part.float().requires_grad_(False)
        for module in part.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        part.to(inside)
        kind: Any = PackedLinear if precision == "bf16" else QuantizedLinear
        for module in part.modules():
            _join(module, kind)
        _replace_linear(part, kind)
        for module in part.modules():
            if isinstance(module, DisentangledSelfAttention):
                module.fix(cast(DebertaPosition, hooks.encoding), part.get_rel_embedding())
        setattr(encoder, name, part)
    change = Cast(inside, next(encoder.embeddings.parameters()).dtype)
    first, last = hooks.ends(encoder)
    first.register_forward_pre_hook(change.before, with_kwargs=True, prepend=True)
    last.register_forward_hook(change.after)
    hooks.precision = precision
    encoder.register_state_dict_pre_hook(hooks.refuse)


def _join(attention: Any, kind: Callable[[nn.Linear], nn.Module]) -> None:
    """Give self-attention one product for its projections, if these are plain."""
    parts = [getattr(attention, name) for name in getattr(attention, "projections", ())]
    if not parts or any(type(each) is not nn.Linear or changed(each) for each in parts):
        return
    with torch.device("meta"):
        joined = nn.Linear(parts[0].in_features, 3 * parts[0].out_features)
    for name in ("weight", "bias"):
        values = torch.cat([getattr(each, name) for each in parts])
        setattr(joined, name, nn.Parameter(values, requires_grad=False))
    attention.joined = kind(joined)


def _replace_linear(part: nn.Module, kind: Callable[[nn.Linear], nn.Module]) -> None:
    """Replace the plain linear layers of transformers' modules by layers made of them."""
    for module in list(part.modules()):
        owned = is_own(type(module).__module__)
        for name, child in module.named_children():
            if owned and type(child) is nn.Linear and not changed(child):
                setattr(module, name, kind(child))
