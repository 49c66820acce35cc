"""The Triton kernels, on a GPU or in Triton's interpreter, against attention written out."""

import importlib.util

import pytest
import torch

from tests.attention.cases import (
    EMBED_DIM,
    INTERPRETED,
    build,
    gradients,
    normal,
    padding_mask,
    run,
)
from tests.tolerances import assert_close, assert_gradients_close, assert_trained_alike
from tupe_fairseq.attention import Layout, Padding, share_attention, triton_backend
from tupe_fairseq.kernels.random_bits import keep_mask, rounded
from tupe_fairseq.modules.encoder import Encoder
from tupe_fairseq.position import build_position_encoding
from tupe_fairseq.position.indices import toeplitz

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None or not (INTERPRETED or DEVICE == "cuda"),
        reason="there is no GPU, and triton is not interpreting (test_triton.py)",
    ),
]
#: Of vectors that are given.
HEADS = 2


def on_device(*modules):
    return [module.to(DEVICE) for module in modules]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("padding", ["none", "mask", "packed"])
@pytest.mark.parametrize("length", [1, 97])
@pytest.mark.parametrize("case", ["none", "t5", "tupe_a", "tupe_r", "tupe_r-tie_cls"])
def test_triton_equals_eager(case, length, padding, dtype):
    encoding, attention = on_device(*build(case, length, dtype))
    x = normal(2, length, EMBED_DIM, seed=length, dtype=dtype).to(DEVICE).requires_grad_()
    mask = padding_mask(length, length // 2, 0).to(DEVICE)
    layout = Layout(2, length, None if padding == "none" else mask)
    if padding == "packed":
        layout = Layout.of(Padding.read(mask), 2, length)
    found = []
    for backend in ("triton", "eager"):
        shared = share_attention(encoding, layout.pack(x), layout=layout, backend=backend)
        output = attention(layout.pack(x), shared)[0]
        found.append((output, gradients(output, x, encoding, attention)))
    (actual, of_actual), (expected, of_expected) = found
    assert actual.dtype == dtype
    assert_close(actual, expected)
    assert_gradients_close(of_actual, of_expected, dtype)


def vectors(head_dim, length, dtype=torch.float32, batch=2):
    """q, k, v with the strides that projections give them."""
    qkv = normal(batch, length, 3, HEADS, head_dim, seed=head_dim, dtype=dtype).to(DEVICE)
    q, k, v = (x.transpose(1, 2) for x in qkv.unbind(2))
    return [x.requires_grad_() for x in (q * head_dim**-0.5, k, v)]


def attend(q, k, v, bias, p=0.0, key=0, **shared):
    return triton_backend._Attend.apply(
        q, k, v, bias, triton_backend.Shared(bias, **shared), p, key
    )


def written_out(q, k, v, bias, kept=None, p=0.0):
    """In float64."""
    q, k, v, bias = (x.double() for x in (q, k, v, bias))
    weights = (q @ k.mT + (bias if bias.dim() == 3 else toeplitz(bias, k.size(2)))).softmax(-1)
    if kept is not None:
        weights = weights * kept / (1 - rounded(p))
    return weights @ v


def assert_same(actual, expected, inputs):
    """Output, and gradients of all inputs, by name."""
    dtype = actual.dtype
    assert_close(actual.double(), expected, dtype)
    of_out = normal(*actual.shape, seed=9, dtype=dtype).to(DEVICE)
    found, wanted = (
        dict(zip(inputs, torch.autograd.grad(out, inputs.values(), of), strict=True))
        for out, of in ((actual, of_out), (expected, of_out.double()))
    )
    assert_gradients_close(found, wanted, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("head_dim", [1, 16, 24, 64, 128])
def test_triton_takes_any_head_dimension(head_dim, dtype):
    length = 67
    q, k, v = vectors(head_dim, length, dtype)
    bias = normal(HEADS, 2 * length - 1, seed=4).to(DEVICE).requires_grad_()
    inputs = {"q": q, "k": k, "v": v, "bias": bias}
    assert_same(attend(q, k, v, bias), written_out(q, k, v, bias), inputs)


@pytest.mark.parametrize("by_distance", [True, False], ids=["by_distance", "cells"])
@pytest.mark.parametrize("rows", [15, 1 << 20])
def test_triton_sums_the_gradient_of_the_bias_in_parts(monkeypatch, by_distance, rows):
    """Over queries, and over shares of the sentences."""
    from tupe_fairseq.kernels.triton import launch

    length = 37
    monkeypatch.setattr(triton_backend, "ROWS", rows * 4 * HEADS * length)
    q, k, v = vectors(8, length, batch=5)
    shape = (2 * length - 1,) if by_distance else (length, length)
    bias = normal(HEADS, *shape, seed=4).to(DEVICE).requires_grad_()
    found = []
    for enough in (1, 4 * HEADS, 1 << 20):
        monkeypatch.setattr(launch, "ENOUGH", enough)
        out = attend(q, k, v, bias)
        found.append(torch.autograd.grad(out.square().sum(), bias)[0])
    expected = torch.autograd.grad(written_out(q, k, v, bias).square().sum(), bias)[0]
    for gradient in found:
        assert_gradients_close({"bias": gradient}, {"bias": expected}, torch.float32)


def test_triton_drops_weights_and_differentiates_that_very_mask():
    """One-hot values show the weights: which are kept, how they are scaled."""
    length, p, key = 70, 0.25, 1234567890123456789
    q, k, v = vectors(length, length)
    bias = normal(HEADS, length, length, seed=4).to(DEVICE).requires_grad_()
    one_hot = torch.eye(length, device=DEVICE).expand_as(v).contiguous()
    kept = attend(q, k, one_hot, bias, p, key).detach() != 0
    assert abs(kept.double().mean().item() - (1 - p)) < 6 * (p * (1 - p) / kept.numel()) ** 0.5
    for dim in (0, 1, 2, 3):
        # No head, query or key is favoured.
        share = kept.double().mean([d for d in range(4) if d != dim])
        deviation = (p * (1 - p) * share.numel() / kept.numel()) ** 0.5
        assert (share - (1 - p)).abs().max() < 6 * deviation
    inputs = {"q": q, "k": k, "v": v, "bias": bias}
    expected = written_out(q, k, v, bias, kept, p)
    assert_same(attend(q, k, v, bias, p, key), expected, inputs)
    # As on CPUs: same key, same mask.
    rows = 2 * HEADS * length
    assert torch.equal(kept.cpu(), keep_mask(rows, length, p, key).view(kept.shape))


def test_triton_drops_by_the_seed_alone():
    encoding, attention = on_device(*build("tupe_r", 33))
    attention.dropout = 0.3
    x = normal(2, 33, EMBED_DIM, seed=0).to(DEVICE).requires_grad_()
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        output, _ = run(encoding, attention.train(), x, backend="triton")
        found.append([output, *gradients(output, x, encoding, attention).values()])
    first, again, other = found
    # Bit by bit: no program adds to what another writes.
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])


def test_triton_trains_to_the_same_parameters():
    """Ten steps with padding; dropout off, whose masks eager lays out in another order."""
    trained = []
    mask = padding_mask(21, 0, 9, 15).to(DEVICE)
    x = normal(3, 21, EMBED_DIM, seed=0).to(DEVICE)
    for backend in ("triton", "eager"):
        torch.manual_seed(1)
        encoding = build_position_encoding("tupe_r", EMBED_DIM, 3, 21)
        options = {"dropout": 0, "attention_dropout": 0, "attention_backend": backend}
        encoder = Encoder(encoding, num_layers=2, ffn_dim=16, **options).to(DEVICE)
        optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
        for _ in range(10):
            optimizer.zero_grad()
            (encoder(x, mask) - x).masked_fill(mask[:, :, None], 0).square().mean().backward()
            optimizer.step()
        trained.append(dict(encoder.named_parameters()))
    assert_trained_alike(*trained)


def test_triton_makes_no_tensor_of_all_scores(monkeypatch):
    """Of T5 not even H×T×T, in either direction."""
    length, batch = 130, 3
    monkeypatch.setattr(triton_backend, "ROWS", 4 * HEADS * length * 16)
    q, k, v = vectors(8, length, batch=batch)
    bias = normal(HEADS, 2 * length - 1, seed=4).to(DEVICE).requires_grad_()
    with torch.profiler.profile(profile_memory=True) as profile:
        attend(q, k, v, bias).sum().backward()
    memory = [max(e.cpu_memory_usage, e.device_memory_usage) for e in profile.events()]
    assert 0 < max(memory) < 4 * HEADS * length * length
