"""Attention in blocks as a function with its gradient.

The scores of a block stay in cache from one product to the next, and are computed again in the
backward pass (Dao et al. 2022). The gradient of the positional term is summed over sequences block
by block.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..kernels.first_derivatives import refuse_second
from ..kernels.products import multiply
from ..kernels.softmax import ScoreTerms, softmax_dropout_, softmax_dropout_backward_
from .bias_gradient import BiasGradient
from .blocks import Block, Blocks
from .relative import TENSORS, Table, Tensors, heads_first


class BlockedPass(NamedTuple):
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
    this: BlockedPass, learned: BiasGradient | None = None
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


class Attend(torch.autograd.Function):
    """softmax(q kᵀ + bias_ij) v, B×H×T×D, from `Tensors` and the parts of the bias."""

    @staticmethod
    def forward(ctx: Any, this: BlockedPass, *tensors: Any) -> Tensor:
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
        return None, *refuse_second(gradients, (grad_out, *saved), "blocked")


def _gradients(
    this: BlockedPass, saved: Any, grad_out: Tensor, learns: bool
) -> tuple[Tensor | None, ...]:
    """Of the tensors of `Attend`; of the parts of the bias if it `learns`."""
    blocks = this.blocks
    x = Tensors(*saved[:TENSORS])
    parts = saved[TENSORS:]
    grad_out = heads_first(grad_out)
    grads = x.zeros(blocks)
    tables = x.tables(this.firsts, grads, grad_out)
    of_scores, of_values = _by_use(tables)
    learned = BiasGradient(blocks.bias) if learns and blocks.bias is not None else None
    for block, terms, grad_bias in _each_block(this, learned):
        queries = block.queries(x.q)
        grad_rows = block.queries(grad_out)
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
