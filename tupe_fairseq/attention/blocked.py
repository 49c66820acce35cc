"""Attention in blocks, for CPUs: memory O(T), no B×H×T×T tensor in either direction.

The scores of a block stay in cache from one product to the next, and are computed again in the
backward pass (Dao et al. 2022). The gradient of the positional term is summed over sequences block
by block.
"""

from dataclasses import replace
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
from .blocks import Block, Blocks, split_into_blocks
from .fused import padding_scores
from .layout import Layout
from .relative import Relative, relative_inputs

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
        if bias is not None:
            bias = bias.to(dtype)
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
        return Blocks(blocks, bias, padding, workspace, share, layout.lengths)

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
            return _attend_other(q, k, v, prepared, dropout).to(dtype)
        relative = None if shared.relative is None else shared.relative.to(wide)
        is_fused = dropout == 0 and relative is None
        if is_fused and (fused := _attend_fused(prepared, q, k, v)) is not None:
            return fused.to(dtype)
        parts = () if prepared.bias is None else prepared.bias.parts().values()
        key = draw_key() if dropout else 0
        q, *inputs = relative_inputs(q, relative)
        return _Attend.apply(q, k, v, prepared, dropout, key, *inputs, *parts).to(dtype)


def _attend_fused(blocks: Blocks, q: Tensor, k: Tensor, v: Tensor) -> Tensor | None:
    """The output without dropout and terms of content, where a kernel for it is faster."""
    cells = None if blocks.bias is None else blocks.bias.cells
    by_torch = _is_torch_faster(blocks)
    # Of keys that are not consecutive, the kernel knows nothing.
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


class _BiasGradient:
    """The gradient of the bias, summed over blocks; never B×H×T×T."""

    def __init__(self, bias: AttentionBias):
        self.leaves = {name: part.detach() for name, part in bias.parts().items()}
        self.sums = {name: torch.zeros_like(part) for name, part in self.leaves.items()}
        self.bias = bias

    def grad_rows(self, block: Block) -> Tensor:
        """Where to sum the gradient of `Blocks.positional_rows`, H×R×S."""
        if "cells" in self.sums and not block.with_cls:
            return block.rows_of(replace(self.bias, cells=self.sums["cells"]))
        return torch.zeros_like(block.rows_of(self.bias))

    def add_rows(self, block: Block, gradient: Tensor) -> None:
        """Add the gradient of these rows to the parts from which they are computed."""
        if "cells" in self.sums:
            if not block.with_cls:
                return  # `gradient` is a view of the sums.
            rows = self.sums["cells"][:, block.first : block.first + block.rows]
            for columns, keys in block.spans:
                rows[..., keys] += gradient[..., columns]
            return
        leaves = {name: leaf.requires_grad_() for name, leaf in self.leaves.items()}
        with torch.enable_grad():
            rows = block.rows_of(replace(self.bias, **leaves))
        found = torch.autograd.grad(rows, tuple(leaves.values()), gradient)
        for total, part in zip(self.sums.values(), found, strict=True):
            total += part


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
        relative = Relative(firsts, q if other_q is None else other_q, k, (a, b, c))
        for same_queries in prepared.blocks:
            rows = prepared.positional_rows(same_queries[0])
            for block in same_queries:
                workspace = block.cells_in(prepared.workspace[0])
                scores = _products(block, block.queries(q), k, workspace)
                relative.add_to_scores(block, scores)
                softmax_dropout_(scores, prepared.terms(block, rows, p, key))
                _sum_over_keys(block, scores, v, block.queries(out))
                relative.add_to_output(block, scores, out)
        ctx.save_for_backward(q, k, v, other_q, a, b, c, *parts)
        ctx.constants = prepared, p, key, firsts
        return out.transpose(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Any) -> tuple[Tensor | None, ...]:
        q, k, v, other_q, a, b, c, *parts = ctx.saved_tensors
        prepared, p, key, firsts = ctx.constants
        gradient = _heads_first(gradient)
        grad_q, grad_k, grad_v = map(prepared.empty_like, (q, k, v))
        grad_other = None if other_q is None else torch.zeros_like(other_q)
        relative = Relative(firsts, q if other_q is None else other_q, k, (a, b, c))
        bias_learns = any(ctx.needs_input_grad[PARTS])
        bias_gradient = _BiasGradient(prepared.bias) if bias_learns else None
        for same_queries in prepared.blocks:
            rows = prepared.positional_rows(same_queries[0])
            grad_rows = None if bias_gradient is None else bias_gradient.grad_rows(same_queries[0])
            for block in same_queries:
                workspace, second_workspace = map(block.cells_in, prepared.workspace)
                grad_out = block.queries(gradient)
                scores = _products(block, block.queries(q), k, workspace)
                relative.add_to_scores(block, scores)
                grad_scores = _products(block, grad_out, v, second_workspace)
                relative.add_to_weights(block, grad_scores, gradient)
                grad_bias = None if grad_rows is None else block.part_of(grad_rows)
                terms = prepared.terms(block, rows, p, key)
                softmax_dropout_backward_(scores, grad_scores, grad_bias, terms)
                # The first queries see all keys and write, unless keys are hidden: then the
                # gradients begin with 0 (`empty_like`).
                accumulate = block.first > 0 or prepared.hides
                for columns, grad_part in block.keys(grad_v):
                    multiply(scores[..., columns].mT, grad_out, grad_part, accumulate)
                for columns, grad_part in block.keys(grad_k):
                    cells = grad_scores[..., columns].mT
                    multiply(cells, block.queries(q), grad_part, accumulate)
                _sum_over_keys(block, grad_scores, k, block.queries(grad_q))
                grad_relative_q = grad_q if grad_other is None else grad_other
                relative.add_gradients(
                    block, scores, grad_scores, gradient, grad_relative_q, grad_k
                )
            if bias_gradient is not None and grad_rows is not None:
                bias_gradient.add_rows(same_queries[0], grad_rows)
        grad_parts = [None] * len(parts) if bias_gradient is None else bias_gradient.sums.values()
        grad_q, grad_k, grad_v, grad_other = map(
            _batch_first, (grad_q, grad_k, grad_v, grad_other)
        )
        tables = relative.gradients()
        return grad_q, grad_k, grad_v, *NO_GRADIENTS, grad_other, *tables, *grad_parts


def _products(block: Block, rows: Tensor, x: Tensor, workspace: Tensor) -> Tensor:
    """Products of rows, M×R×D, and the keys of x, H×B×T×D: M×R×S, perhaps in the workspace."""
    keys = block.keys(x)
    if len(keys) == 1:
        return multiplied(rows, keys[0][1].mT, workspace)
    for columns, part in keys:
        multiply(rows, part.mT, workspace[..., columns])
    return workspace


def _sum_over_keys(block: Block, cells: Tensor, x: Tensor, out: Tensor) -> None:
    """Write cells, M×R×S, times the block's keys of x, H×B×T×D, to out, M×R×D."""
    for columns, part in block.keys(x):
        multiply(cells[..., columns], part, out, accumulate=columns.start > 0)


def _heads_first(x: Tensor | None) -> Tensor | None:
    """B×H×T×D -> H×B×T×D, contiguous, so that the matrices of a group are consecutive."""
    return None if x is None else x.transpose(0, 1).contiguous()


def _batch_first(x: Tensor | None) -> Tensor | None:
    """H×B×T×D -> B×H×T×D."""
    return None if x is None else x.transpose(0, 1)


ATTENTION_BACKENDS.register(Blocked.name)(Blocked())
