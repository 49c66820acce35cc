"""Attention in blocks: whatever the blocks, the result is that of attention written out.

Sizes are such that a batch makes one block or several, whole tiles and parts of tiles, and a
positional term that is stored whole or, for the longest inputs, computed for each block.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.attention.cases import (
    EMBED_DIM,
    attention_of,
    build,
    enlarged,
    gradients,
    normal,
    padding_mask,
    run,
)
from tests.covering import covering
from tests.tolerances import assert_close, assert_gradients_close
from tupe_fairseq.position import AttentionBias, PositionEncoding, Shape

CASES = ("none", "learned", "rope", "alibi", "t5", "tupe_a", "tupe_a-tie_cls", "tupe_r")
#: Vectors by distance, with clips shorter and longer than the sentences.
RELATIVE = ("shaw", "shaw-wide", "shaw-long", "deberta", "deberta-wide", "deberta-long")
RELATIVE += ("transformer_xl",)
VECTORS = ("shaw", "deberta", "transformer_xl")
#: With a window, an untied [CLS] still sees all tokens, and all tokens see it.
UNTIED = ("tupe_a", "tupe_r")
TIED = ("tupe_a-tie_cls", "tupe_r-tie_cls")
#: Length and padding of sentences in groups: in a batch of fewer cells, all are one group.
DIFFERENT = (310, (0, 9, 157, 309))
#: As short a sequence as has a term too large to be stored for three heads.
LONG = 6700
LENGTH = 23


def assert_as_eager(case, length, padded=(), max_length=None, width=EMBED_DIM, heads=3, **how):
    """Output and gradients equal those of `eager`, of sentences with so much padding at the end.

    Args:
        case: of the encodings.
        length: of the sentences in `eager`.
        padded: words of padding of each sentence; one whole sentence if empty.
        max_length: of the sentences in `blocked`: padding after those in `eager`.
        width: of the model.
        heads: number of heads.
        how: for `prepared_for`.
    """
    longest = max_length or length
    how["packed"] = True
    encoding, attention = build(case, longest, embed_dim=width, num_heads=heads)
    x = normal(len(padded) or 1, length, width, seed=0).requires_grad_()
    padding = padding_mask(length, *padded) if padded else None
    expected = run(encoding, attention, x, padding, backend="eager", **how)
    if max_length is not None:
        padding = F.pad(padding, (0, longest - length), value=True)
    appended = F.pad(x, (0, 0, 0, longest - length))
    actual = run(encoding, attention, appended, padding, backend="blocked", **how)[:, :length]
    assert_close(actual, expected)
    with torch.no_grad():
        evaluated = run(encoding, attention, appended, padding, backend="blocked", **how)
    assert_close(evaluated[:, :length], expected)
    assert_gradients_close(
        gradients(actual, x, encoding, attention),
        gradients(expected, x, encoding, attention),
        torch.float32,
    )


CAUSAL = {"causal": True}
NEAR = {"window": 3}
TILES = [(length, padded) for length in (LENGTH, 70, 130) for padded in ((0, 0, 0), (0, 2, 22))]
#: What the blocks are: cases; lengths and padding; and how attention is called.
BLOCKS = {
    "one": (CASES, [(LENGTH, ()), (LENGTH, (0, 9, 22))], [{}]),
    "similar lengths": (CASES, [(513, (0, 13, 40, 70))], [{}]),
    "different lengths": ([*CASES, *VECTORS], [DIFFERENT], [{}]),
    # Little padding stays in the batch.
    "padded": (
        [*CASES, "sandwich", "shaw"],
        [(LENGTH, (0, 1, 2)), (70, (0, 1, 2))],
        [{}, CAUSAL, NEAR],
    ),
    "tiles of relative vectors": (RELATIVE, TILES, [{}, CAUSAL]),
    # Blocks leave out hidden keys.
    "hidden": (
        ["none", "alibi", *UNTIED, *TIED, *VECTORS],
        [(300, ()), (300, (0, 9, 72)), (300, (0, 190, 250))],
        [CAUSAL, NEAR, {"window": 150}, CAUSAL | NEAR],
    ),
}


WAYS = ("native", "torch")


@pytest.mark.parametrize(
    ("case", "how", "length", "padded", "way"),
    [
        pytest.param(case, how, *sentences, way, id=f"{name}-{case}-{how}-{sentences}-{way}")
        for name, (cases, lengths, hows) in BLOCKS.items()
        for case, sentences, how, way in covering(cases, lengths, hows, WAYS)
    ],
    indirect=["way"],
)
def test_blocks(way, case, how, length, padded):
    assert_as_eager(case, length, padded, **how)


@pytest.mark.parametrize("how", [{}, CAUSAL], ids=str)
@pytest.mark.parametrize("case", [*CASES, "shaw", "deberta-wide", "transformer_xl"])
def test_blocks_of_one_head(case, how):
    """The last block has one query or few."""
    assert_as_eager(case, 1025, **how)


@pytest.mark.parametrize(
    ("case", "how", "way"),
    covering([*CASES, *VECTORS], [{}, CAUSAL, NEAR], WAYS),
    indirect=["way"],
    ids=str,
)
def test_terms_of_long_inputs_are_computed_for_each_block(way, case, how):
    assert_as_eager(case, 150, (0, 53, 110), max_length=LONG, **how)


@pytest.mark.parametrize(
    ("case", "size", "padded", "way"),
    covering(["none", "tupe_r", *VECTORS], [(5, 130), (16, 257), (24, 600)], (False, True), WAYS),
    indirect=["way"],
    ids=str,
)
def test_width_of_heads(way, case, size, padded):
    """Narrower and wider than what a kernel computes at a time."""
    width, length = size
    assert_as_eager(case, length, (0, 9 if padded else 0), width=2 * width, heads=2)


def largest_allocation(case, length, **how):
    """In bytes, of a forward and a backward pass."""
    encoding, attention = build(case, length)
    x = normal(1, length, EMBED_DIM, seed=0).requires_grad_()
    with torch.profiler.profile(profile_memory=True) as profile:
        run(encoding, attention, x, backend="blocked", **how).sum().backward()
    return max(event.cpu_memory_usage for event in profile.events())


@pytest.mark.parametrize(
    ("case", "length", "causal"),
    [
        *((case, 2500, False) for case in ("shaw", "shaw-long", "deberta", "transformer_xl")),
        ("tupe_r", LONG, True),
    ],
)
def test_no_tensor_of_all_cells(case, length, causal):
    """Half of the scores of one head are not allocated."""
    assert largest_allocation(case, length, causal=causal) < length**2 * 4 / 2


@pytest.mark.parametrize("case", RELATIVE)
def test_dropout_acts_on_relative_terms(way, case):
    """The mask of the forward pass is that of the backward pass: against finite differences."""
    encoding, attention = build(case, 7, torch.float64)
    attention.dropout = 0.4
    x = normal(2, 7, EMBED_DIM, seed=0, dtype=torch.float64)
    vectors = [p for module in (attention, encoding) for p in module.parameters()]

    def output(*_):
        torch.manual_seed(1)
        return run(encoding, attention.train(), x, backend="blocked")

    torch.manual_seed(1)
    without = run(encoding, attention.eval(), x, backend="blocked")
    assert not torch.allclose(output(), without)
    assert torch.autograd.gradcheck(output, vectors, fast_mode=True)


class OfCells(PositionEncoding):
    """A value for each query and key; in memory, those of a key may lie together."""

    def __init__(self, heads, length, transposed=False):
        super().__init__(Shape(heads * length, heads, length))
        cells = normal(heads, length, length, seed=3)
        self.cells = nn.Parameter(cells.mT.contiguous().mT if transposed else cells)

    def attention_bias(self, queries, keys, start=0):
        return AttentionBias(keys, cells=self.cells)


def weighing(heads, length, p):
    """An attention whose output is its weights after dropout, T×H×T; and without dropout."""
    encoding = OfCells(heads, length)
    attention = attention_of(encoding, p).train()
    eye = torch.eye(length)
    with torch.no_grad():
        for name, parameter in attention.named_parameters():
            is_content = name in ("q_proj.weight", "k_proj.weight")
            nn.init.normal_(parameter) if is_content else nn.init.zeros_(parameter)
        for projection in (attention.v_proj, attention.out_proj):
            nn.init.eye_(projection.weight)
    # In each head, the value of a word is 1 at its position and 0 elsewhere.
    x = eye.repeat(1, heads)[None]

    def dropped(seed):
        torch.manual_seed(seed)
        out = run(encoding, attention, x, backend="blocked")
        return out.unflatten(-1, (heads, length)).squeeze(0)

    def whole():
        q, k = (
            project(x[0]).unflatten(-1, (heads, length)).transpose(0, 1)
            for project in (attention.q_proj, attention.k_proj)
        )
        scores = q @ k.mT / length**0.5 + encoding.cells
        return scores.softmax(-1).transpose(0, 1)

    return encoding, attention, dropped, whole


@pytest.mark.parametrize(("heads", "length"), [(3, LENGTH), (1, 1025)])
def test_dropout_of_weights_and_its_gradients(way, heads, length):
    """Dropped weights are 0, the others scaled; gradients are those of this very mask."""
    p = 0.25
    encoding, attention, dropped, whole = weighing(heads, length, p)
    found = dropped(7)
    kept = found.detach() != 0
    assert abs(kept.float().mean().item() - (1 - p)) < 0.05
    expected = whole() * kept / (1 - p)
    assert_close(found, expected)
    inputs = {
        "query": attention.q_proj.weight,
        "key": attention.k_proj.weight,
        "cells": encoding.cells,
    }
    gradient = normal(*found.shape, seed=4)
    actual, wanted = (
        dict(zip(inputs, torch.autograd.grad(out, inputs.values(), gradient), strict=True))
        for out in (found, expected)
    )
    assert_gradients_close(actual, wanted, torch.float32)


@torch.no_grad()
def test_dropout_differs_between_blocks():
    """No two queries draw the same mask."""
    _, attention, dropped, _ = weighing(1, 1025, 0.5)
    nn.init.zeros_(attention.q_proj.weight)
    rows = dropped(7).flatten(0, 1) == 0
    assert len(rows.unique(dim=0)) == len(rows)


@pytest.mark.parametrize("how", [{}, CAUSAL, NEAR], ids=str)
def test_cells_in_any_order_of_memory(way, how):
    encoding = OfCells(3, 40, transposed=True)
    attention = enlarged(attention_of(encoding), 2)
    x = normal(1, 40, 120, seed=0).requires_grad_()
    made = []
    for backend in ("blocked", "eager"):
        out = run(encoding, attention, x, backend=backend, **how)
        made.append((out, gradients(out, x, encoding, attention)))
        with torch.no_grad():
            assert_close(run(encoding, attention, x, backend=backend, **how), made[0][0])
    assert_close(made[0][0], made[1][0])
    assert_gradients_close(made[0][1], made[1][1], torch.float32)
