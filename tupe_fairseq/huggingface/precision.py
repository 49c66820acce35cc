"""The precision in which the layers of an optimized encoder compute.

In "bf16" and "int8" the layers are copies for inference. They are changed where that saves time:
one product gives queries, keys and values, and what depends on weights alone is computed once.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..attention import Layout, TupeMultiheadAttention
from ..base.errors import ConfigurationError
from ..kernels.linear import PackedLinear, project
from ..kernels.quantized import QuantizedLinear
from ..position import LayerTerms
from ..position.deberta import DebertaTerms
from ..position.relative import ByDistance, RelativeVectors

#: Values of `precision`.
PRECISIONS = ("fp32", "bf16", "int8")


class JoinedAttention(TupeMultiheadAttention):
    """Self-attention with one projection, C -> 3C, which may scale the queries.

    Args:
        attention: whose sizes and output projection it has.
        scale: a factor of the queries.
        terms: the layer's terms.
    """

    def __init__(
        self,
        attention: TupeMultiheadAttention,
        scale: float = 1.0,
        terms: LayerTerms | None = None,
    ):
        width = attention.embed_dim
        bias = attention.q_proj.bias is not None
        with torch.device("meta"):
            super().__init__(width, attention.num_heads, attention.dropout, layer_terms=terms)
            self.qkv_proj = nn.Linear(width, 3 * width, bias)
        for name in ("q_proj", "k_proj", "v_proj"):
            delattr(self, name)
        self.out_proj = attention.out_proj
        self.scale = scale
        self.train(attention.training)

    def _project(self, x: Tensor, layout: Layout) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = project(x, self.qkv_proj).chunk(3, -1)
        if self.scale != 1:
            q = q * self.scale if torch.is_grad_enabled() else q.mul_(self.scale)
        heads = self.num_heads
        return layout.per_head(q, heads), layout.per_head(k, heads), layout.per_head(v, heads)


class FixedTerms(LayerTerms):
    """DeBERTa's terms of constant weights, which are projected once for all distances."""

    def __init__(self, terms: Any, encoding: Any, attention: TupeMultiheadAttention):
        super().__init__()
        # From here on, all distances share the last bucket. One more than a program reads: torch
        # exports no slice that can be the whole tensor.
        longest = max(encoding.shape.max_positions, encoding.relative_clip) + 1
        vectors: RelativeVectors = terms.relative(encoding, longest, attention)
        self.firsts = {}
        for name in ("for_queries", "for_keys"):
            by_distance: ByDistance | None = getattr(vectors, name)
            if by_distance is not None:
                self.register_buffer(name, by_distance.vectors.contiguous())
                self.firsts[name] = by_distance.first

    def relative(self, encoding: Any, length: int, attention: Any = None) -> RelativeVectors:
        parts: dict[str, Any] = {
            name: ByDistance(self.get_buffer(name), first).within(length, length)
            for name, first in self.firsts.items()
        }
        return RelativeVectors(**parts)


@torch.no_grad()
def convert(encoder: Any, precision: str) -> None:
    """Let the layers compute in another precision, for inference; embeddings stay.

    "bf16" stores and computes the layers in bfloat16. "int8" stores each row of the matrices in
    8 bits with a scale, and quantizes what they multiply when they run. torch's quantized products
    do this: they need no compiler, whereas torchao's int8 on CPUs needs torch.compile.

    Raises:
        ConfigurationError: the layers have been converted already.
    """
    if precision == encoder.precision:
        return
    if encoder.precision != "fp32":
        raise ConfigurationError(
            f"precision is {precision!r}, but the model's layers are {encoder.precision} already: "
            "optimize the original model."
        )
    # torch quantizes fp32 alone, and the model may be in bf16.
    stack = copy.deepcopy(encoder.linked()).eval().float()
    join_products(stack)
    stack.requires_grad_(False)
    if precision == "bf16":
        _replace_linear(stack.to(torch.bfloat16), PackedLinear)
    else:
        _replace_linear(stack, QuantizedLinear)
    encoder.keep(stack, precision)


def _replace_linear(stack: nn.Module, kind: Callable[[nn.Linear], nn.Module]) -> None:
    """Replace the linear layers by layers of another kind, made of them."""
    for module in list(stack.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Linear:
                setattr(module, name, kind(child))


@torch.no_grad()
def join_products(stack: Any) -> None:
    """Let one product give queries, keys and values, and compute terms of weights alone once.

    Layers with other terms than DeBERTa's stay.
    """
    for layer in stack.layers:
        terms = layer.self_attn.layer_terms
        joined = isinstance(layer.self_attn, JoinedAttention)
        if not joined and (terms is None or isinstance(terms, DebertaTerms)):
            layer.self_attn = _for_inference(layer.self_attn, stack.embed_positions)


def _for_inference(attention: Any, encoding: Any) -> JoinedAttention:
    """An attention that computes the same with constant weights."""
    terms = attention.layer_terms
    if terms is not None:
        terms = FixedTerms(terms, encoding, attention)
    joined = JoinedAttention(attention, terms=terms)
    parts = [attention.q_proj, attention.k_proj, attention.v_proj]
    for name, _ in parts[0].named_parameters():
        q, k, v = (getattr(part, name) for part in parts)
        scaled = torch.cat((attention.scaling * q, k, v))
        setattr(joined.qkv_proj, name, nn.Parameter(scaled))
    return joined
