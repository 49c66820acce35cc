"""Attention in blocks, for CPUs: memory O(T), no B×H×T×T tensor in either direction.

The scores of a block stay in cache from one product to the next, and are computed again in the
backward pass (Dao et al. 2022). The gradient of the positional term is summed over sequences block
by block.
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..base.machine import fact_of_processor
from ..kernels.attend import attend
from ..kernels.dropout import dropout as drop
from ..kernels.first_derivatives import refuse_second
from ..kernels.products import multiply
from ..kernels.random_bits import draw_key
from ..kernels.softmax import ScoreTerms, softmax_dropout_, softmax_dropout_backward_
from ..position.bias import AttentionBias
from ..position.dtypes import widened
from ..position.relative import RelativeVectors
from .backend import ATTENTION_BACKENDS, Backend, Feature, Inputs, Prepared
from .bias_gradient import BiasGradient
from .blocks import Block, Blocks, split_into_blocks
from .fused import padding_scores
from .layout import Layout
from .relative import TENSORS, Table, Tensors, heads_first, relative_inputs

#: Below this share of the cells, blocks are faster than torch's kernel, which computes all cells.
SPARSE = 2 / 3
#: Tokens below which torch's kernel is faster than the one in C, unless there is padding.
SHORT = 32
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
            # No blocks.
            mask = None if bias is None else bias.dense()[None]
            return Inputs(padding if mask is None else mask if padding is None else mask + padding)
        if bias is not None and bias.cells is not None and bias.cells.stride(-1) != 1:
            bias = replace(bias, cells=bias.cells.contiguous())
        if bias is not None and heads * layout.length**2 * wide.itemsize <= DENSE:
            bias = bias.computed()
        blocks = _divided(bias, layout, heads, wide)
        if padding is not None:
            blocks = replace(blocks, padding=padding[:, 0])
        by_torch = _is_torch_faster(blocks)
        return Inputs(
            # In half precision, as torch's kernel for it reads padding.
            padding=None if padding is None else padding.to(dtype),
            blocks=replace(
                blocks,
                by_torch=by_torch,
                by_kernel=_is_kernel_faster(blocks, by_torch, layout.length),
                natively=bias is None and _is_native(dtype),
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
        inputs, dtype, wide = prepared.inputs, v.dtype, widened(v.dtype)
        if p == 1:
            return v.new_zeros(*q.shape[:-1], v.size(-1))
        blocks, fused = inputs.blocks, not p and relative is None
        if fused and blocks is not None and blocks.natively:
            return F.scaled_dot_product_attention(q, k, v, inputs.padding, scale=1.0)
        if dtype != wide:
            q, k, v = q.to(wide), k.to(wide), v.to(wide)
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
        out = _Attend.apply(_Pass(blocks, p, key, firsts), *tensors.heads_first(), *parts)
        return out.to(dtype)


def _divided(bias: AttentionBias | None, layout: Layout, heads: int, dtype: torch.dtype) -> Blocks:
    """The blocks of a batch without padding's scores."""
    lengths = layout.lengths or (layout.length,) * layout.batch
    visible, global_cls = None, False
    if bias is not None and bias.visible is not None:
        visible = bias.visible.reach(layout.length)
        global_cls = bias.visible.exempts_cls(layout.length)
    blocks = split_into_blocks(heads, lengths, visible, global_cls)
    cells = [block.cells for same_queries in blocks for block in same_queries]
    return Blocks(
        blocks,
        bias,
        padding=None,
        workspace=torch.empty(2, max(cells), dtype=dtype),
        share=sum(cells) / (heads * layout.batch * layout.length**2),
        visible=visible,
        global_cls=global_cls,
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


def _is_kernel_faster(blocks: Blocks, by_torch: bool, length: int) -> bool:
    """Whether the kernel in C is, where there is one: it has no gradient and no dropout."""
    # It requires that the keys of a query are contiguous.
    is_served = not blocks.global_cls and (blocks.bias is None or blocks.cells is not None)
    return is_served and not torch.is_grad_enabled() and not (by_torch and length < SHORT)


def _attend_other(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float) -> Tensor:
    """softmax(q kᵀ + mask) v; with dropout, torch's kernel draws its mask on one core."""
    if p == 0:
        return F.scaled_dot_product_attention(q, k, v, mask, scale=1.0)
    scores = q @ k.mT if mask is None else q @ k.mT + mask
    return drop(scores.softmax(-1), p) @ v


class _Pass(NamedTuple):
    """Constants of a forward pass and its backward pass.

    Attributes:
        blocks: the blocks.
        p: probability of dropping a weight.
        key: of the dropout masks.
        firsts: the first distance of each table in `Tensors`.
    """

    blocks: Blocks
    p: float
    key: int
    firsts: Mapping[str, int]


def _each_block(
    this: _Pass, learned: BiasGradient | None = None
) -> Iterator[tuple[Block, ScoreTerms, Tensor | None]]:
    """Blocks, the terms of each, and where to sum the gradient of the bias."""
    blocks = this.blocks
    for same_queries in blocks.blocks:
        largest = same_queries[0]
        rows = None if blocks.bias is None else largest.rows_of(blocks.bias)
        grad_rows = None if learned is None else learned.grad_rows(largest)
        for block in same_queries:
            bias = None if rows is None else block.part_of(rows)
            padding = None if blocks.padding is None else block.padding_of(blocks.padding)
            grad_bias = None if grad_rows is None else block.part_of(grad_rows)
            yield block, ScoreTerms(bias, padding, this.p, this.key, block.first_word), grad_bias
        if learned is not None and grad_rows is not None:
            learned.add_rows(largest, grad_rows)


class _Attend(torch.autograd.Function):
    """softmax(q kᵀ + bias_ij) v, B×H×T×D, from `Tensors` and the parts of the bias."""

    @staticmethod
    def forward(ctx: Any, this: _Pass, *tensors: Any) -> Tensor:
        x = Tensors(*tensors[:TENSORS])
        out = this.blocks.empty_like(x.v)
        of_scores, of_values = _by_use(x.tables(this.firsts, out=out))
        for block, terms, _ in _each_block(this):
            scores = block.cells_in(this.blocks.workspace[0])
            for product in block.products_with_keys(block.queries(x.q), x.k, scores):
                multiply(*product)
            _add(of_scores, block, scores)
            softmax_dropout_(scores, terms)
            for product in block.sums_over_keys(scores, x.v, block.queries(out)):
                multiply(*product)
            _sum(of_values, block, scores)
        ctx.save_for_backward(*tensors)
        ctx.this = this
        return out.transpose(0, 1)

    @staticmethod
    def backward(ctx: Any, grad_out: Any) -> tuple[Tensor | None, ...]:
        # Once: checkpointing of activations computes them again at each access.
        saved = ctx.saved_tensors
        learns = any(ctx.needs_input_grad[1 + TENSORS :])
        with torch.no_grad():
            gradients = _gradients(ctx.this, saved, grad_out, learns)
        return None, *refuse_second(gradients, (grad_out, *saved), Blocked.name)


def _gradients(
    this: _Pass, saved: Any, grad_out: Tensor, learns: bool
) -> tuple[Tensor | None, ...]:
    """Of the tensors of `_Attend`; of the parts of the bias if it `learns`."""
    blocks = this.blocks
    x, parts = Tensors(*saved[:TENSORS]), saved[TENSORS:]
    grad_out = heads_first(grad_out)
    grads = x.zeros(blocks)
    tables = x.tables(this.firsts, grads, grad_out)
    of_scores, of_values = _by_use(tables)
    learned = BiasGradient(blocks.bias) if learns and blocks.bias is not None else None
    for block, terms, grad_bias in _each_block(this, learned):
        queries, grad_rows = block.queries(x.q), block.queries(grad_out)
        scores, grad_scores = map(block.cells_in, blocks.workspace)
        for product in (
            *block.products_with_keys(queries, x.k, scores),
            *block.products_with_keys(grad_rows, x.v, grad_scores),
        ):
            multiply(*product)
        _add(of_scores, block, scores)
        _add(of_values, block, grad_scores)
        softmax_dropout_backward_(scores, grad_scores, grad_bias, terms)
        # The first queries see all keys and write, unless keys are hidden: then the gradients
        # begin with 0 (`Blocks.empty_like`).
        accumulate = block.first > 0 or blocks.hides
        for product in (
            *block.sums_over_queries(scores, grad_rows, grads.v, accumulate),
            *block.sums_over_queries(grad_scores, queries, grads.k, accumulate),
            *block.sums_over_keys(grad_scores, x.k, block.queries(grads.q)),
        ):
            multiply(*product)
        _sum(of_scores, block, grad_scores)
        _sum(of_values, block, scores)
    of_tables: dict[str, Any] = {name: table.gradient for name, table in tables.items()}
    grads = grads._replace(**of_tables)
    of_parts = [None] * len(parts) if learned is None else learned.sums.values()
    return (*grads, *of_parts)


def _add(tables: list[Table], block: Block, cells: Tensor) -> None:
    for table in tables:
        table.add_to_cells(block, cells)


def _sum(tables: list[Table], block: Block, cells: Tensor) -> None:
    for table in tables:
        table.add_from_cells(block, cells)


def _by_use(tables: Mapping[str, Table]) -> tuple[list[Table], list[Table]]:
    """The tables that add to scores, and those that add to the output."""
    of_values = [table for name, table in tables.items() if name == "for_values"]
    return [table for table in tables.values() if table not in of_values], of_values


ATTENTION_BACKENDS.register(Blocked.name)(Blocked())
