"""What is handed to a kernel: tensors of any shape, strides and dtype are computed or refused.

tests/stress/test_sanitizers.py runs these tests with kernels under sanitizers, which end the
process at the first number that is read or written outside of a tensor.
"""

import contextlib
import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests import ROOT
from tests.tolerances import assert_close
from tupe_fairseq.errors import DataError
from tupe_fairseq.kernels.attend import attend
from tupe_fairseq.kernels.diagonals import add_by_distance_, sum_by_distance
from tupe_fairseq.kernels.dropout import dropout
from tupe_fairseq.kernels.linear import linear
from tupe_fairseq.kernels.native import pointer
from tupe_fairseq.kernels.products import multiply
from tupe_fairseq.kernels.softmax import (
    ScoreTerms,
    softmax_dropout_,
    softmax_dropout_backward_,
)

#: What a mistake in shapes raises: our refusal, or torch's.
REFUSED = (ValueError, RuntimeError, IndexError)
SIZES = st.sampled_from([1, 2, 3, 16, 17, 33])
DTYPES = st.sampled_from([*[torch.float32] * 6, torch.float64, torch.bfloat16])


@st.composite
def tensors(draw, *shape):
    """A tensor, mostly of this shape; sometimes with other sizes, strides or dtype."""
    sizes = [draw(SIZES) if draw(st.integers(0, 9)) == 0 else size for size in shape]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    x = torch.randn(sizes, generator=generator).to(draw(DTYPES))
    layout = draw(st.sampled_from(["dense", "dense", "dense", "transposed", "holes", "same"]))
    if layout == "transposed":
        return x.mT.contiguous().mT if x.dim() > 1 else x
    if layout == "holes":
        return torch.stack((x, x), -1)[..., 0]
    return x[..., :1].expand(sizes) if layout == "same" else x


def same_or_refused(compute, define, *pairs):
    """Compute what the definition gives, or refuse.

    Where a tensor of the pairs has another shape than the one beside it, computing must only end.
    """
    try:
        found = compute()
    except REFUSED:
        return
    if all(x is None or x.shape == shape for x, shape in pairs):
        assert_close(found.double(), define().double(), found.dtype)


def examples(count=150):
    return settings(max_examples=count, deadline=None)


@examples()
@given(st.data())
@torch.no_grad()
def test_linear(data):
    rows, inputs, outputs = (data.draw(SIZES) for _ in range(3))
    rows, outputs = 4 * rows, 64 * outputs
    x, weight = data.draw(tensors(rows, inputs)), data.draw(tensors(outputs, inputs))
    bias = data.draw(st.one_of(st.none(), tensors(outputs)))
    same_or_refused(
        lambda: linear(x, weight, bias),
        lambda: nn.functional.linear(*(t if t is None else t.double() for t in (x, weight, bias))),
        *((x, (rows, inputs)), (weight, (outputs, inputs)), (bias, (outputs,))),
    )


@examples()
@given(st.data())
def test_dropout(data):
    rows, width = data.draw(SIZES), data.draw(SIZES)
    x = data.draw(tensors(rows, width))
    same_or_refused(lambda: dropout(x, 1e-9), lambda: x, (x, (rows, width)))


@examples()
@given(st.data(), st.booleans())
def test_products(data, accumulate):
    matrices, rows, depth, columns = (data.draw(SIZES) for _ in range(4))
    a, b = data.draw(tensors(matrices, rows, depth)), data.draw(tensors(matrices, depth, columns))
    out = torch.zeros_like(data.draw(tensors(matrices, rows, columns)))

    def compute():
        multiply(a, b, out, accumulate)
        return out

    shapes = (matrices, rows, depth), (matrices, depth, columns), (matrices, rows, columns)
    same_or_refused(compute, lambda: a @ b, *zip((a, b, out), shapes, strict=True))


@examples()
@given(st.data())
def test_softmax(data):
    groups, each, rows, columns = (data.draw(SIZES) for _ in range(4))
    shape, of_bias = (groups * each, rows, columns), (groups, rows, columns)
    scores = data.draw(tensors(*shape)).contiguous()
    bias = data.draw(st.one_of(st.none(), tensors(*of_bias)))
    padding = data.draw(st.one_of(st.none(), tensors(1, 1, columns)))
    terms, weights = ScoreTerms(bias, padding), scores.clone()

    def compute():
        softmax_dropout_(weights, terms)
        return weights

    def define():
        total = scores if bias is None else scores + bias.repeat_interleave(each, 0)
        return (total if padding is None else total + padding).softmax(-1)

    pairs = (scores, shape), (bias, of_bias), (padding, (1, 1, columns))
    same_or_refused(compute, define, *pairs)
    gradient = data.draw(tensors(*shape)).contiguous()
    of_bias = None if bias is None else data.draw(tensors(*of_bias))
    with contextlib.suppress(*REFUSED):
        softmax_dropout_backward_(scores.clone(), gradient, of_bias, terms)


@examples()
@given(st.data(), st.booleans(), st.integers(-20, 40))
def test_diagonals(data, by_key, offset):
    matrices, i, j, columns = (data.draw(SIZES) for _ in range(4))
    of_table = matrices, j if by_key else i, columns
    cells, table = data.draw(tensors(matrices, i, j)), data.draw(tensors(*of_table))
    added = cells.clone()

    def compute():
        add_by_distance_(added, table, offset, by_key)
        return added

    def define():
        distance = torch.arange(j) - torch.arange(i)[:, None] + offset
        row = torch.arange(j if by_key else i)
        row = row.expand(i, j) if by_key else row[:, None].expand(i, j)
        return cells + table[:, row, distance.clamp(0, columns - 1)]

    same_or_refused(compute, define, (cells, (matrices, i, j)), (table, of_table))
    with contextlib.suppress(*REFUSED):
        sum_by_distance(cells, table.clone(), offset, by_key)


@examples()
@given(st.data())
@torch.no_grad()
def test_attention(data):
    batch, heads, length, width, depth = (data.draw(SIZES) for _ in range(5))
    shapes = [(batch, heads, length, each) for each in (width, width, depth)]
    shapes.append((heads, length, length))
    *vectors, bias = (data.draw(tensors(*shape)) for shape in shapes)
    number = st.integers(-1, length + 1)
    lengths = data.draw(st.one_of(st.none(), st.lists(number, min_size=batch, max_size=batch)))

    def compute():
        found = attend(*vectors, ScoreTerms(bias), lengths)
        if found is None:
            raise ValueError
        return found

    def define():
        q, k, v = (x.double() for x in vectors)
        counts = torch.tensor([length] * batch if lengths is None else lengths)
        hidden = torch.arange(length) >= counts[:, None, None, None]
        scores = (q @ k.mT + bias).masked_fill(hidden, -math.inf).softmax(-1)
        return (scores.nan_to_num() @ v).masked_fill(hidden.mT, 0)

    same_or_refused(compute, define, *zip((*vectors, bias), shapes, strict=True))


def test_no_other_place_takes_the_address_of_a_tensor():
    taking = [
        f"{file.name}: {line.strip()}"
        for file in (ROOT / "tupe_fairseq").rglob("*.py")
        for line in file.read_text(encoding="utf-8").splitlines()
        if re.search(r"\bdata_ptr\(", line)
    ]
    assert taking == ["native.py: return x.data_ptr()"]


@pytest.mark.parametrize(
    ("x", "told"),
    [
        (torch.zeros(2, 4), r"shape \(2, 3\) on cpu, but gets torch.float32 of shape \(2, 4\)"),
        (torch.zeros(2, 3, dtype=torch.float64), "gets torch.float64"),
        (torch.zeros(3, 2).mT, r"contiguous tensor, but gets the strides \(1, 2\)"),
    ],
)
def test_a_refusal_says_what_does_not_fit(x, told):
    with pytest.raises(DataError, match=told):
        pointer(x, 2, 3)
