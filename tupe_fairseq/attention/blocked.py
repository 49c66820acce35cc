"""Attention in blocks, for CPUs: memory O(T), no B×H×T×T tensor in either direction.

Where torch's kernel or one in C is faster, it computes the scores instead.
"""

import functools
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from ..base.machine import fact_of_processor
from ..kernels.attend import attend
from ..kernels.dropout import dropout as drop
from ..kernels.linear import prefers_onednn
from ..kernels.random_bits import draw_key
from ..kernels.softmax import ScoreTerms
from ..position.bias import AttentionBias
from ..position.dtypes import widened
from ..position.relative import RelativeVectors
from .backend import ATTENTION_BACKENDS, Backend, Feature, Inputs, Prepared
from .blocked_function import Attend, BlockedPass
from .blocks import Blocks, split_into_blocks
from .fused import padding_scores
from .layout import Layout
from .relative import relative_inputs

#: Below this share of the cells, blocks are faster than torch's kernel, which computes all cells.
SPARSE = 2 / 3
#: Without padding, tokens of a batch up to which torch's kernel is faster than the one in C.
FEW = 16
#: The same where MKL multiplies with AVX-512, and tokens of a sequence beyond which torch's is
#: faster again.
FEW_WITH_MKL = 64
LONG_WITH_MKL = 256
#: Bytes up to which the positional term is stored once for all layers as H×T×T.
DENSE = 1 << 29


class Blocked(Backend):
    """For CPUs: every encoding, in O(T) memory."""

    name = "blocked"
    supports = frozenset(Feature) - {Feature.COMPILED}

    def unavailable(self, device: str) -> str | None:
        return None if device == "cpu" else f"its kernels are for CPUs, not for {device}"

    def prepare(
        self, bias: AttentionBias | None, layout: Layout, heads: int, dtype: torch.dtype
    ) -> Inputs:
        wide = widened(dtype)
        padding = padding_scores(layout.padding_mask, wide)
        bias = None if bias is None else bias.to(wide)
        if layout.other_queries or not layout.batch:
            mask = None if bias is None else bias.dense()[None]
            if mask is None or padding is None:
                return Inputs(padding if mask is None else mask)
            return Inputs(mask + padding)
        if bias is not None and bias.cells is not None and bias.cells.stride(-1) != 1:
            bias = replace(bias, cells=bias.cells.contiguous())
        if bias is not None and heads * layout.length**2 * wide.itemsize <= DENSE:
            bias = bias.computed()
        blocks = _divided(bias, padding, layout, heads, wide)
        by_torch = not layout.alone and _is_torch_faster(blocks)
        return Inputs(
            # In half precision, as torch's kernel for it reads padding.
            padding=None if padding is None else padding.to(dtype),
            blocks=replace(
                blocks,
                by_torch=by_torch,
                by_kernel=_is_kernel_faster(blocks, by_torch, layout),
                natively=not layout.alone and bias is None and _is_native(dtype),
            ),
        )

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        prepared: Prepared,
        p: float,
        relative: RelativeVectors | None = None,
    ) -> Tensor:
        inputs = prepared.inputs
        dtype = v.dtype
        if p == 1:
            return v.new_zeros(*q.shape[:-1], v.size(-1))
        blocks = inputs.blocks
        fused = not p and relative is None
        if fused and blocks is not None and blocks.natively:
            return F.scaled_dot_product_attention(q, k, v, inputs.padding, scale=1.0)
        if dtype.itemsize == 2:
            # Half precision is summed in fp32.
            q = q.float()
            k = k.float()
            v = v.float()
        if blocks is None:
            # Vectors by distance meet this in empty batches alone: incremental decoding gives
            # them to `eager`.
            return _attend_other(q, k, v, inputs.bias, p).to(dtype)
        cells = blocks.cells
        if fused and blocks.by_kernel:
            # Of sequences with known lengths, no padding is read.
            terms = ScoreTerms(cells, blocks.padding if blocks.lengths is None else None)
            out = attend(q, k, v, terms, blocks.lengths, blocks.visible)
            if out is not None:
                return out.to(dtype)
        if fused and blocks.by_torch:
            mask = None if cells is None else cells[None]
            return F.scaled_dot_product_attention(q, k, v, mask, scale=1.0).to(dtype)
        tensors, firsts = relative_inputs(q, k, v, relative)
        parts = () if blocks.bias is None else blocks.bias.parts().values()
        key = draw_key() if p else 0
        out = Attend.apply(BlockedPass(blocks, p, key, firsts), *tensors.heads_first(), *parts)
        return out.to(dtype)


def _divided(
    bias: AttentionBias | None,
    padding: Tensor | None,
    layout: Layout,
    heads: int,
    dtype: torch.dtype,
) -> Blocks:
    """The blocks of a batch; padding's scores are B×1×1×T."""
    lengths = layout.lengths or (layout.length,) * layout.batch
    visible = None
    untie_cls = False
    if bias is not None and bias.visible is not None:
        visible = bias.visible.reach(layout.length)
        # In short sequences, no token is outside of the window.
        untie_cls = bias.visible.untie_cls and -visible[0] < layout.length - 1
    if layout.alone:
        blocks = [
            same_queries
            for i, each in enumerate(lengths)
            for same_queries in split_into_blocks(heads, (each,), visible, untie_cls, i)
        ]
    else:
        blocks = split_into_blocks(heads, lengths, visible, untie_cls)
    cells = [block.cells for same_queries in blocks for block in same_queries]
    return Blocks(
        blocks,
        bias,
        cells=None if bias is None else bias.cells,
        padding=None if padding is None else padding[:, 0],
        workspace=torch.empty(2, max(cells), dtype=dtype),
        share=sum(cells) / (heads * layout.batch * layout.length**2),
        visible=visible,
        untie_cls=untie_cls,
        lengths=layout.lengths,
    )


def _is_native(dtype: torch.dtype) -> bool:
    """Whether torch's kernel is best: with the processor's instructions for bf16.

    It then takes a third of its time in fp32. Gradients are computed in fp32.
    """
    return dtype == torch.bfloat16 and not torch.is_grad_enabled() and multiplies_bf16()


@functools.cache
def multiplies_bf16() -> bool:
    """Whether the processor reports instructions for products in bf16."""
    return "amx_bf16" in (fact_of_processor("flags") or "").split()


def _is_torch_faster(blocks: Blocks) -> bool:
    """Whether torch's fused kernel is faster: it has no dropout and no gradient of a bias."""
    if blocks.padding is not None or blocks.share < SPARSE:
        return False
    if blocks.bias is None:
        return True
    learns = torch.is_grad_enabled() and any(
        part.requires_grad for part in blocks.bias.parts().values()
    )
    return blocks.cells is not None and not learns


def _is_kernel_faster(blocks: Blocks, by_torch: bool, layout: Layout) -> bool:
    """Whether the kernel in C is, where there is one: it has no gradient and no dropout."""
    # It requires that the keys of a query are contiguous.
    is_served = not blocks.untie_cls and (blocks.bias is None or blocks.cells is not None)
    if not is_served or torch.is_grad_enabled():
        return False
    if not by_torch:
        return True
    tokens = layout.batch * layout.length
    if prefers_onednn():
        return tokens > FEW
    if blocks.bias is not None and torch.backends.cpu.get_cpu_capability() == "AVX2":
        # With a bias, torch's takes up to 2.8 times as long there, whatever the length.
        return True
    return tokens > FEW_WITH_MKL and layout.length <= LONG_WITH_MKL


def _attend_other(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float) -> Tensor:
    """softmax(q kᵀ + mask) v; with dropout, torch's kernel draws its mask on one core."""
    if p == 0:
        return F.scaled_dot_product_attention(q, k, v, mask, scale=1.0)
    scores = q @ k.mT if mask is None else q @ k.mT + mask
    return drop(scores.softmax(-1), p) @ v


ATTENTION_BACKENDS.register(Blocked.name)(Blocked())
