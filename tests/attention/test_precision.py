"""Dimensions that layer terms append in half precision: running sums keep their precision."""

import pytest
import torch

from tests.attention.cases import EMBED_DIM, NUM_HEADS, attention_of, enlarged, normal, run
from tests.tolerances import SPLIT_SUMS, assert_close
from tupe_fairseq.attention.precision import products_in
from tupe_fairseq.position import build_position_encoding

LENGTH = 1024
HALF = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)


def sums(length=LENGTH):
    """Running sums of ln σ(N(0, 1)), 1×1×T×1 in fp64: down to −800 at T = 1,024."""
    logs = torch.nn.functional.logsigmoid(normal(length, seed=0, dtype=torch.float64))
    return logs.cumsum(0)[None, None, :, None]


def as_vectors(f):
    one = torch.ones_like(f)
    return torch.cat((f, one), -1), torch.cat((one, -f), -1)


@HALF
def test_differences_of_running_sums(dtype):
    f = sums()
    expected = f - f.mT
    of_q, of_k = products_in(dtype, *as_vectors(f.float()))
    assert of_q.dtype == of_k.dtype == dtype
    # Kernels accumulate in fp32.
    found = of_q.float() @ of_k.float().mT
    assert expected.abs().max() > 700
    assert (found - expected).abs().max() < SPLIT_SUMS


@HALF
def test_gradients_are_those_of_the_product(dtype):
    """d(a·b)/da is b with all of its parts, not its first alone."""
    a, b = (normal(1, 1, 5, 3, seed=n).requires_grad_() for n in (0, 1))
    of_q, of_k = products_in(dtype, a, b)
    (of_q.double() @ of_k.double().mT).sum().backward()
    found = a.grad, b.grad
    expected = torch.autograd.grad((a.double() @ b.double().mT).sum(), (a, b))
    for gradients in zip(found, expected, strict=True):
        assert_close(*gradients, dtype)


@HALF
@pytest.mark.parametrize("backend", ["sdpa", "blocked", "eager"])
def test_gates_of_long_sequences(backend, dtype):
    """Attention in half precision against the same module in float64."""
    encoding = build_position_encoding("fox", EMBED_DIM, NUM_HEADS, LENGTH, False)
    attention = enlarged(attention_of(encoding), 2).to(dtype)
    x = normal(1, 512, EMBED_DIM, seed=0, dtype=dtype)

    how = {"backend": backend, "causal": True}
    found = run(encoding, attention, x, **how)
    assert_close(found, run(encoding, attention.double(), x.double(), **how), dtype)


def test_autocast_does_not_round_rows_of_the_bias():
    """Rows are computed one by one in decoding, and where the term is too large to be stored."""
    encoding = enlarged(build_position_encoding("tupe_a", EMBED_DIM, NUM_HEADS, 64, False), 2)
    bias = encoding.attention_bias(64, 64)
    with torch.autocast("cpu", torch.bfloat16):
        found = bias.row(40).cells
    assert torch.equal(found, bias.row(40).cells)
