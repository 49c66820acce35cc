"""The precision in which the layers of an optimized encoder compute.

In "bf16" and "int8" the layers are copies for inference, with other linear layers.
"""

import copy
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import nn

from ..base.errors import ConfigurationError
from ..kernels.linear import PackedLinear
from ..kernels.quantized import QuantizedLinear
from ..position.deberta import DebertaPosition
from .modules import changed
from .optimized import Hooks, SelfAttention, Third
from .optimized_deberta import DisentangledSelfAttention

#: Values of `precision`.
PRECISIONS = ("fp32", "bf16", "int8")
Kind = Callable[[nn.Linear], nn.Module]


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
    hooks.precision = precision
    # torch quantizes fp32 alone, and the model may be in bf16.
    inside = torch.bfloat16 if precision == "bf16" else torch.float32
    outside = next(encoder.embeddings.parameters()).dtype
    if inside != outside:
        hooks.inside = inside
        hooks.outside = outside
        encoder.embeddings.register_forward_hook(hooks.embedded)
        encoder.register_forward_hook(hooks.leave)
    # The copies read the configuration that the user may change.
    shared = {id(each): each for each in (hooks, encoder.config)}
    for name in hooks.parts:
        part = copy.deepcopy(getattr(encoder, name), dict(shared))
        part.float().requires_grad_(False)
        _convert(part, hooks, PackedLinear if precision == "bf16" else QuantizedLinear)
        setattr(encoder, name, part.to(inside))
    encoder.register_state_dict_pre_hook(hooks.refuse)


def _convert(part: Any, hooks: Hooks, kind: Kind) -> None:
    """Replace the plain linear layers of transformers' modules; no dropout stays."""
    for module in list(part.modules()):
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(module, DisentangledSelfAttention):
            module.fix(cast(DebertaPosition, hooks.encoding), part.get_rel_embedding())
        if isinstance(module, SelfAttention):
            _join(module, hooks, kind)
        if type(module).__module__.startswith(("transformers.", "tupe_fairseq.")):
            for name, child in module.named_children():
                if _is_plain(child):
                    setattr(module, name, kind(child))


def _is_plain(module: Any) -> bool:
    return type(module) is nn.Linear and not changed(module)


def _join(attention: SelfAttention, hooks: Hooks, kind: Kind) -> None:
    """Give self-attention one product for its projections, if these are plain."""
    parts: list[Any] = [getattr(attention, name) for name in attention.projections]
    if not parts or not all(_is_plain(each) and each.bias is not None for each in parts):
        return
    with torch.device("meta"):
        joined = nn.Linear(parts[0].in_features, 3 * parts[0].out_features)
    scale = attention.scale(hooks.encoding)
    for name in ("weight", "bias"):
        q, k, v = (getattr(each, name) for each in parts)
        setattr(joined, name, nn.Parameter(torch.cat((q * scale, k, v)), requires_grad=False))
    product = kind(joined)
    for index, name in enumerate(attention.projections):
        setattr(attention, name, Third(product, index, scale))
