"""Scores by distance in the kernels of Triton against float64, cell by cell."""

import functools

import pytest
import torch

from tests.kernels.test_triton import EXACT, PADDING, errors, in_float64, mask, packed, results
from tests.triton_interpreter import DEVICE
from tupe_fairseq.kernels.triton_attention import attention

pytestmark = pytest.mark.usefixtures("kernels_of_triton")
HEADS = 2
WIDTH = 16
LENGTHS = (41, 70, 1)
LONGEST = max(LENGTHS)
ROWS = sum(LENGTHS) + PADDING * len(LENGTHS)
TERMS = {"both": (True, True), "c2p": (True, False), "p2c": (False, True)}


def tensors(dtype, terms):
    """q, k and v, N×H×D, and vectors by distance, H×(2T−1)×D or None; products are near 1."""
    torch.manual_seed(0)
    q, k, v = torch.randn(ROWS, 3, HEADS, WIDTH, device=DEVICE).to(dtype).unbind(1)
    tables = torch.randn(2, HEADS, 2 * LONGEST - 1, WIDTH, device=DEVICE) * WIDTH**-0.5
    tables = tables.to(dtype).unbind()
    tables = [x if used else None for x, used in zip(tables, terms, strict=True)]
    return [x if x is None else x.detach().requires_grad_() for x in (q, k, v, *tables)]


def run(q, k, v, for_queries, for_keys, dropout=0.0, **how):
    torch.manual_seed(3)
    tables = {"for_queries": for_queries, "for_keys": for_keys}
    return attention(q, k, v, *packed(LENGTHS), LONGEST, dropout=dropout, **tables, **how)


def expected(q, k, v, for_queries, for_keys, dropout=0.0, scale=1.0):
    """Cell (i, j) reads the vectors of distance j − i, in the dtype of q."""
    out = torch.zeros_like(v)
    kept = mask(LENGTHS, HEADS, dropout) if dropout else [1] * len(LENGTHS)
    for start, length, keep in zip(packed(LENGTHS)[0], LENGTHS, kept, strict=True):
        rows = torch.arange(start, start + length, device=DEVICE)
        at = torch.arange(length, device=DEVICE)
        distance = at - at[:, None] + LONGEST - 1
        of_q, of_k, of_v = (x[rows].transpose(0, 1) for x in (q, k, v))
        scores = of_q @ of_k.mT * scale
        if for_queries is not None:
            products = of_q @ for_queries.mT
            scores = scores + products[:, at[:, None], distance]
        if for_keys is not None:
            products = of_k @ for_keys.mT
            scores = scores + products[:, at, distance]
        weights = scores.softmax(-1) * keep / (1 - dropout)
        out = out.index_add(0, rows, (weights @ of_v).transpose(0, 1))
    return out


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_equals_float64(dtype, terms):
    """In half precision, to twice what torch is off by."""
    inputs = tensors(dtype, TERMS[terms])
    how = {"scale": WIDTH**-0.5, "dropout": 0.1 if terms == "both" else 0.0}
    exact = results(expected, in_float64(inputs), **how)
    found = errors(results(run, inputs, **how), exact)
    allowed = [EXACT] * len(found)
    if dtype != torch.float32:
        allowed = [2 * x for x in errors(results(expected, inputs, **how), exact)]
    assert all(a <= b for a, b in zip(found, allowed, strict=True)), (found, allowed)


def test_heads_go_in_chunks(monkeypatch):
    from tupe_fairseq.kernels import triton_launch

    inputs = tensors(torch.float32, TERMS["both"])
    whole = results(run, inputs)
    monkeypatch.setattr(triton_launch, "STORED", 1)
    assert all(map(torch.equal, results(run, inputs), whole))


def test_full_sequences_have_no_ends():
    """Rows of equal length, with a bias that is trained."""
    torch.manual_seed(0)
    inputs = [x.detach().requires_grad_() for x in torch.randn(3, 2 * 9, HEADS, WIDTH)]
    tables = [x.requires_grad_() for x in torch.randn(2, HEADS, 17, WIDTH)]
    inputs += [torch.randn(HEADS, 9, 9, requires_grad=True), *tables]
    inputs = [x.detach().to(DEVICE).requires_grad_() for x in inputs]
    starts = torch.tensor([0, 9], device=DEVICE)

    def whole(q, k, v, bias, a, b, where=(None, None)):
        return attention(q, k, v, *where, 9, bias, padded=False, for_queries=a, for_keys=b)

    by_rows = functools.partial(whole, where=(starts, starts + 9))
    assert all(map(torch.equal, results(whole, inputs), results(by_rows, inputs)))
