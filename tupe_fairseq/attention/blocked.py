"""Attention in blocks, for CPUs: memory O(T), no B×H×T×T tensor in either direction.

The scores of a block stay in cache from one product to the next, and are computed again in the
backward pass (Dao et al. 2022). The gradient of the positional term is summed over sentences block
by block. Between the products `softmax` acts; dropout masks are made again from their key.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..kernels.dropout import draw_key
from ..kernels.softmax import Terms, weigh, weigh_backward
from ..position.score import PositionalScore
from ..position.tables import widened
from .backend import ATTENTION_BACKENDS, Backend
from .blocks import Block, walk
from .fused import padding_scores

#: Bytes of a positional term that is made dense once for all layers; beyond, block by block.
DENSE = 1 << 29


@dataclass(frozen=True)
class Blocks:
    """What all layers share.

    Attributes:
        walked: the blocks; those of the same queries are one inner list.
        score: the positional term, or None.
        padding: 0 at words, `PADDING_SCORE` at padding, B×1×T, or None.
        memory: for the cells of two blocks, 2×cells.
    """

    walked: list[list[Block]]
    score: PositionalScore | None
    padding: Tensor | None
    memory: Tensor

    def rows(self, block: Block) -> Tensor | None:
        """The term of the rows that begin where this block does, H×R×T, or None."""
        if self.score is None:
            return None
        return self.score.rows(block.first, block.first + block.step)

    def empty_like(self, x: Tensor) -> Tensor:
        """Where to write what the blocks give: they leave out padding, which stays 0."""
        return torch.empty_like(x) if self.padding is None else torch.zeros_like(x)

    @property
    def served_by_torch(self) -> bool:
        """Whether torch's fused kernel is faster: it has no dropout and no gradient of a bias."""
        if self.padding is not None or self.score is None:
            return self.padding is None
        learns = torch.is_grad_enabled() and any(
            part.requires_grad for part in self.score.parts().values()
        )
        return self.score.cells is not None and not learns

    def terms(self, block: Block, rows: Tensor | None, p: float, key: int) -> Terms:
        """What acts on the scores of a block, with the term of its rows."""
        padding = self.padding
        if padding is not None:
            padding = padding[block.group.sentences, :, : block.group.keys]
        return Terms(None if rows is None else block.bias(rows), padding, p, key, block.words)


class Blocked(Backend):
    """The fastest on CPUs for every encoding whose terms do not depend on content."""

    name = "blocked"
    compiles = False
    causal = True

    def speed(self, device):
        return 3 if device == "cpu" else 0.5

    def refuses(self, encoding, terms, need_weights):
        if need_weights:
            return "it does not return attention weights"
        if terms is not None:
            return "it cannot add a positional term that depends on content"
        return None

    def prepare(self, score, layout, heads, dtype):
        dtype = widened(dtype)
        if score is not None:
            score = score.to(dtype)
            if heads * layout.length**2 * dtype.itemsize <= DENSE:
                score = PositionalScore(layout.length, cells=score.dense())
        padding = padding_scores(layout.padding_mask, dtype)
        lengths = layout.lengths or (layout.length,) * layout.batch
        walked = walk(heads, lengths)
        largest = max(block.cells for blocks in walked for block in blocks)
        memory = torch.empty(2, largest, dtype=dtype)
        return Blocks(walked, score, None if padding is None else padding[:, 0], memory)

    def attend(self, q, k, v, shared, layer):
        dtype, wide = v.dtype, widened(v.dtype)
        p = layer.dropout if layer.training else 0.0
        if p == 1:
            return torch.zeros_like(v), None
        blocks = shared.prepared
        parts = () if blocks.score is None else blocks.score.parts().values()
        q, k, v = (x.to(wide) for x in (q, k, v))
        if p == 0 and blocks.served_by_torch:
            bias = None if blocks.score is None else blocks.score.cells[None]
            return F.scaled_dot_product_attention(q, k, v, bias, scale=1.0).to(dtype), None
        out = _Attend.apply(q, k, v, blocks, p, draw_key() if p else 0, *parts)
        return out.to(dtype), None


class _ScoreGradient:
    """The gradient of the positional term, summed over blocks; never B×H×T×T."""

    def __init__(self, score: PositionalScore):
        self.leaves = {name: part.detach() for name, part in score.parts().items()}
        self.sums = {name: torch.zeros_like(part) for name, part in self.leaves.items()}
        self.score = score

    def of_rows(self, block: Block) -> Tensor:
        """Where to sum that of the rows which begin where this block does, H×R×T."""
        rows = slice(block.first, block.first + block.step)
        if "cells" in self.sums:
            return self.sums["cells"][:, rows]
        return torch.zeros_like(self.score.rows(rows.start, rows.stop))

    def add_rows(self, block: Block, gradient: Tensor) -> None:
        """Pass the gradient of these rows on to the parts they are made of."""
        if "cells" in self.sums:
            return
        leaves = {name: leaf.requires_grad_() for name, leaf in self.leaves.items()}
        with torch.enable_grad():
            rows = replace(self.score, **leaves).rows(block.first, block.first + block.step)
        found = torch.autograd.grad(rows, tuple(leaves.values()), gradient)
        for total, part in zip(self.sums.values(), found, strict=True):
            total += part


class _Attend(torch.autograd.Function):
    """softmax(q kᵀ + v_ij) v; B×H×T×D each, and the tensors of which the score v_ij is made."""

    @staticmethod
    def forward(ctx, q, k, v, blocks, p, key, *parts):
        q, k, v = map(_heads_first, (q, k, v))
        out = blocks.empty_like(q)
        for same_queries in blocks.walked:
            rows = blocks.rows(same_queries[0])
            for block in same_queries:
                scores = block.cells_of(blocks.memory[0])
                multiply(block.queries(q), block.keys(k).mT, scores)
                weigh(scores, blocks.terms(block, rows, p, key))
                multiply(scores, block.keys(v), block.queries(out))
        ctx.save_for_backward(q, k, v, *parts)
        ctx.blocks, ctx.p, ctx.key = blocks, p, key
        return out.transpose(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        q, k, v, *parts = ctx.saved_tensors
        blocks, gradient = ctx.blocks, _heads_first(gradient)
        of_q, of_k, of_v = map(blocks.empty_like, (q, k, v))
        of_score = _ScoreGradient(blocks.score) if any(ctx.needs_input_grad[6:]) else None
        for same_queries in blocks.walked:
            rows = blocks.rows(same_queries[0])
            of_rows = None if of_score is None else of_score.of_rows(same_queries[0])
            for block in same_queries:
                scores, of_scores = map(block.cells_of, blocks.memory)
                of_out = block.queries(gradient)
                multiply(block.queries(q), block.keys(k).mT, scores)
                multiply(of_out, block.keys(v).mT, of_scores)
                of_bias = None if of_rows is None else block.bias(of_rows)
                weigh_backward(
                    scores, of_scores, of_bias, blocks.terms(block, rows, ctx.p, ctx.key)
                )
                more = block.first > 0
                multiply(scores.mT, of_out, block.keys(of_v), more)
                multiply(of_scores.mT, block.queries(q), block.keys(of_k), more)
                multiply(of_scores, block.keys(k), block.queries(of_q))
            if of_score is not None:
                of_score.add_rows(same_queries[0], of_rows)
        of_parts = [None] * len(parts) if of_score is None else of_score.sums.values()
        of_vectors = (x.transpose(0, 1) for x in (of_q, of_k, of_v))
        return *of_vectors, None, None, None, *of_parts


def _heads_first(x: Tensor) -> Tensor:
    """B×H×T×D -> H×B×T×D, contiguous: the matrices of a group stand side by side."""
    return x.transpose(0, 1).contiguous()


def multiply(a: Tensor, b: Tensor, out: Tensor, more: bool = False) -> None:
    """Write a b into out, or add it, matrix by matrix: M×R×S · M×S×D -> M×R×D."""
    if more:
        out += a @ b
    elif out.is_contiguous():
        torch.bmm(a, b, out=out)
    else:
        # Into strided memory, torch multiplies one matrix after the other.
        out.copy_(a @ b)


ATTENTION_BACKENDS.register(Blocked.name)(Blocked())
