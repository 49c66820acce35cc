"""Attention in blocks, for CPUs: memory O(T), no B×H×T×T tensor in either direction.

The scores of a block stay in cache from one product to the next, and are computed again in the
backward pass (Dao et al. 2022). The gradient of the positional term is summed over sequences block
by block.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..kernels.attend import attend
from ..kernels.dropout import dropout as drop
from ..kernels.products import multiplied, multiply
from ..kernels.random_bits import draw_key
from ..kernels.softmax import ScoreTerms, softmax_dropout_, softmax_dropout_backward_
from ..position.bias import AttentionBias
from ..position.tables import widened
from .backend import ATTENTION_BACKENDS, Backend, Feature, SharedAttention
from .bias_gradient import BiasGradient
from .blocks import Block, Blocks, Factor, split_into_blocks
from .fused import padding_scores
from .layout import Layout
from .relative import Table, relative_inputs, tables_of

#: Below this share of the cells, blocks are faster than torch's kernel, which computes all cells.
SPARSE = 2 / 3
#: Tokens below which torch's kernel is faster than the one in C, unless there is padding.
SHORT = 32
#: Bytes up to which the positional term is stored once for all layers as H×T×T.
DENSE = 1 << 29
#: Among the arguments of `_Attend`: no gradients of prepared, p, key, firsts; parts of the bias.
NO_GRADIENTS, PARTS = (None,) * 4, slice(11, None)


class Blocked(Backend):
    """For CPUs: every encoding whose terms are biases, products or vectors, in memory O(T)."""

    name = "blocked"
    supports = frozenset(Feature) - {Feature.CONTENT, Feature.COMPILED}

    def unavailable(self, device: str) -> str | None:
        return None if device == "cpu" else f"its kernels are for CPUs, not for {device}"

    def prepare(
        self, bias: AttentionBias | None, layout: Layout, heads: int, dtype: torch.dtype
    ) -> Any:
        dtype = widened(dtype)
        padding = padding_scores(layout.padding_mask, dtype)
        factor = None
        if bias is not None:
            bias = bias.to(dtype)
            factor, bias = bias.factors(), replace(bias, factor=None)
            if bias.cells is not None and bias.cells.stride(-1) != 1:
                bias = replace(bias, cells=bias.cells.contiguous())
        if layout.other_queries or not layout.batch:
            # No blocks: the mask that is added to the scores, broadcastable to B×H×T×S
            mask = None if bias is None else bias.dense()[None]
            return padding if mask is None else mask if padding is None else mask + padding
        if bias is not None and heads * layout.length**2 * dtype.itemsize <= DENSE:
            bias = bias.computed()
        lengths = layout.lengths or (layout.length,) * layout.batch
        visible, has_cls = (None, False) if bias is None else (bias.visible, bias.has_cls)
        blocks = split_into_blocks(heads, lengths, visible, has_cls)
        cells = [block.cells for same_queries in blocks for block in same_queries]
        workspace = torch.empty(2, max(cells), dtype=dtype)
        share = sum(cells) / (heads * layout.batch * layout.length**2)
        if padding is not None:
            padding = padding[:, 0]
        return Blocks(blocks, bias, padding, workspace, share, layout.lengths, factor)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, shared: SharedAttention, dropout: float = 0.0
    ) -> Tensor:
        prepared = shared.prepared
        dtype, wide = v.dtype, widened(v.dtype)
        if dropout == 1:
            return v.new_zeros(*q.shape[:-1], v.size(-1))
        q, k, v = (x.to(wide) for x in (q, k, v))
        if not isinstance(prepared, Blocks):
            # Vectors by distance meet this in empty batches alone: `DecoderCache` gives them to
            # `eager`.
            return _attend_other(shared.scaled(q), k, v, prepared, dropout).to(dtype)
        is_fused = dropout == 0 and shared.relative is None and prepared.factor is None
        if is_fused and (fused := _attend_fused(prepared, shared.scaled(q), k, v)) is not None:
            return fused.to(dtype)
        if shared.temperature is not None:
            prepared = replace(prepared, temperature=shared.temperature.to(wide))
        terms = filter(None, (prepared.bias, prepared.factor))
        parts = [part for term in terms for part in term.parts().values()]
        key = draw_key() if dropout else 0
        q, *inputs = relative_inputs(q, shared.relative)
        return _Attend.apply(q, k, v, prepared, dropout, key, *inputs, *parts).to(dtype)


def _attend_fused(blocks: Blocks, q: Tensor, k: Tensor, v: Tensor) -> Tensor | None:
    """The output without dropout and terms of content, where a kernel for it is faster."""
    cells = None if blocks.bias is None else blocks.bias.cells
    by_torch = _is_torch_faster(blocks)
    # The kernel requires contiguous keys.
    is_served = blocks.bias is None or (cells is not None and not blocks.bias.has_cls)
    if is_served and not torch.is_grad_enabled() and not (by_torch and q.size(2) < SHORT):
        # Of sequences with known lengths, no padding is read.
        terms = ScoreTerms(cells, blocks.padding if blocks.lengths is None else None)
        visible = None if blocks.bias is None else blocks.bias.visible
        if (out := attend(q, k, v, terms, blocks.lengths, visible)) is not None:
            return out
    if not by_torch:
        return None
    bias = None if cells is None else cells[None]
    return F.scaled_dot_product_attention(q, k, v, bias, scale=1.0)


def _is_torch_faster(blocks: Blocks) -> bool:
    """Whether torch's fused kernel is faster: it has no dropout and no gradient of a bias."""
    if blocks.padding is not None or blocks.share < SPARSE:
        return False
    if blocks.bias is None:
        return True
    learns = torch.is_grad_enabled() and any(
        part.requires_grad for part in blocks.bias.parts().values()
    )
    return blocks.bias.cells is not None and not learns


def _attend_other(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float) -> Tensor:
    """softmax(q kᵀ + mask) v; with dropout, torch's kernel draws its mask on one core."""
    if p == 0:
        return F.scaled_dot_product_attention(q, k, v, mask, scale=1.0)
    scores = q @ k.mT if mask is None else q @ k.mT + mask
    return drop(scores.softmax(-1), p) @ v


def _each_block(
    prepared: Blocks,
    p: float,
    key: int,
    learned: BiasGradient | None = None,
    of_factor: BiasGradient | None = None,
) -> Iterator[tuple[Block, ScoreTerms, Tensor | None, Factor | None]]:
    """Blocks, the terms of each, where to sum the gradient of the bias, and the factor."""
    for same_queries in prepared.blocks:
        largest = same_queries[0]
        rows = None if prepared.bias is None else largest.rows_of(prepared.bias)
        grad_rows = None if learned is None else learned.grad_rows(largest)
        factors = None if prepared.factor is None else largest.rows_of(prepared.factor)
        grad_factors = None if of_factor is None else of_factor.grad_rows(largest)
        for block in same_queries:
            bias = None if rows is None else block.part_of(rows)
            padding = None if prepared.padding is None else block.padding_of(prepared.padding)
            grad_bias = None if grad_rows is None else block.part_of(grad_rows)
            factor = None
            if factors is not None:
                grad = None if grad_factors is None else block.part_of(grad_factors)
                factor = Factor(block.part_of(factors), grad)
            yield block, ScoreTerms(bias, padding, p, key, block.first_word), grad_bias, factor
        for gradient, total in ((learned, grad_rows), (of_factor, grad_factors)):
            if gradient is not None and total is not None:
                gradient.add_rows(largest, total)


class _Attend(torch.autograd.Function):
    """softmax(q kᵀ + bias_ij) v for q, k B×H×T×E, v B×H×T×D, and parts of the bias.

    p and key are those of dropout. For firsts, other_q, a, b and c see `relative_inputs`.
    """

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx, q, k, v, prepared, p, key, firsts, other_q, a, b, c, *parts
    ) -> Tensor:
        q, k, v, other_q = map(_heads_first, (q, k, v, other_q))
        out = prepared.empty_like(v)
        factors = (q if other_q is None else other_q, k, None)
        tables = tables_of((a, b, c), firsts, factors, (None, None, out))
        for block, terms, _, factor in _each_block(prepared, p, key):
            scores = _products(block, block.queries(q), k, prepared.workspace[0], tables[:2])
            prepared.scale_(block, scores)
            softmax_dropout_(scores, terms)
            if factor is not None:
                factor.multiply_(scores)
            _sum_over_keys(block, scores, v, block.queries(out))
            for table in filter(None, tables[2:]):
                table.add_from_cells(block, scores)
        ctx.save_for_backward(q, k, v, other_q, a, b, c, *parts)
        ctx.constants = prepared, p, key, firsts
        return out.transpose(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Any) -> tuple[Tensor | None, ...]:
        q, k, v, other_q, a, b, c, *parts = ctx.saved_tensors
        prepared, p, key, firsts = ctx.constants
        grad_out = _heads_first(grad_out)
        grad_q, grad_k, grad_v = map(prepared.empty_like, (q, k, v))
        grad_other = None if other_q is None else torch.zeros_like(other_q)
        factors = (q if other_q is None else other_q, k, grad_out)
        sums = (grad_q if other_q is None else grad_other, grad_k, None)
        tables = tables_of((a, b, c), firsts, factors, sums)
        learned = BiasGradient(prepared.bias) if any(ctx.needs_input_grad[PARTS]) else None
        of_factor = BiasGradient(prepared.factor) if learned and prepared.factor else None
        for block, terms, grad_bias, factor in _each_block(prepared, p, key, learned, of_factor):
            queries, grad_rows = block.queries(q), block.queries(grad_out)
            scores = _products(block, queries, k, prepared.workspace[0], tables[:2])
            grad_scores = _products(block, grad_rows, v, prepared.workspace[1], tables[2:])
            prepared.scale_(block, scores)
            if factor is not None:
                grad_product = grad_scores.clone()
                factor.multiply_(grad_scores)
            softmax_dropout_backward_(scores, grad_scores, grad_bias, terms)
            if factor is not None:
                factor.backward_(scores, grad_product)
            prepared.scale_(block, grad_scores)
            # The first queries see all keys and write, unless keys are hidden: then the gradients
            # begin with 0 (`empty_like`).
            accumulate = block.first > 0 or prepared.hides
            _sum_over_queries(block, scores, grad_rows, grad_v, accumulate)
            _sum_over_queries(block, grad_scores, queries, grad_k, accumulate)
            _sum_over_keys(block, grad_scores, k, block.queries(grad_q))
            for table, cells in zip(tables, (grad_scores, grad_scores, scores), strict=True):
                if table is not None:
                    table.add_from_cells(block, cells)
        grads = map(_batch_first, (grad_q, grad_k, grad_v))
        of_tables = (None if table is None else table.gradient for table in tables)
        found = (each.sums.values() for each in (learned, of_factor) if each is not None)
        of_parts: list[Tensor | None] = [*chain(*found)] or [None] * len(parts)
        return *grads, *NO_GRADIENTS, _batch_first(grad_other), *of_tables, *of_parts


def _products(
    block: Block, rows: Tensor, x: Tensor, memory: Tensor, tables: Sequence[Table | None]
) -> Tensor:
    """Products of rows, M×R×D, with the keys of x, H×B×T×D, and with vectors: M×R×S."""
    keys, cells = block.keys(x), block.cells_in(memory)
    if len(keys) == 1:
        # Perhaps not in the workspace.
        cells = multiplied(rows, keys[0][1].mT, cells)
    else:
        for columns, part in keys:
            multiply(rows, part.mT, cells[..., columns])
    for table in filter(None, tables):
        table.add_to_cells(block, cells)
    return cells


def _sum_over_keys(block: Block, cells: Tensor, x: Tensor, out: Tensor) -> None:
    """Write cells, M×R×S, times the block's keys of x, H×B×T×D, to out, M×R×D."""
    for columns, part in block.keys(x):
        multiply(cells[..., columns], part, out, accumulate=columns.start > 0)


def _sum_over_queries(
    block: Block, cells: Tensor, rows: Tensor, out: Tensor, accumulate: bool
) -> None:
    """Write or add cells, M×R×S, times rows, M×R×D, to the block's keys of out, H×B×T×D."""
    for columns, part in block.keys(out):
        multiply(cells[..., columns].mT, rows, part, accumulate)


def _heads_first(x: Tensor | None) -> Tensor | None:
    """B×H×T×D -> H×B×T×D, contiguous, so that the matrices of a group are consecutive."""
    return None if x is None else x.transpose(0, 1).contiguous()


def _batch_first(x: Tensor | None) -> Tensor | None:
    """H×B×T×D -> B×H×T×D."""
    return None if x is None else x.transpose(0, 1)


ATTENTION_BACKENDS.register(Blocked.name)(Blocked())
