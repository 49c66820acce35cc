"""DAPE, FoX and CABLE where what they add to the scores is large: hidden tokens stay hidden."""

import itertools

import pytest
import torch
from torch import nn

from tests.attention.cases import Weighing, attention_of, normal, run
from tests.tolerances import assert_close
from tupe_fairseq.position import build_position_encoding

WIDTH, HEADS = 8, 2


def strong_dape(length, bidirectional=False):
    """b = −d^1.9 per head, and f = −3b."""
    options = {"dape_base": "kerple_power", "dape_width": HEADS}
    encoding = build_position_encoding("dape", WIDTH, HEADS, length, bidirectional, **options)
    attention = attention_of(encoding)
    terms = attention.layer_terms
    # b_ij = −slope · |i − j|^exponent, with the largest that training allows.
    with torch.no_grad():
        encoding.base.slope.fill_(1.0)
        encoding.base.exponent.fill_(1.9)
        for parameter in terms.parameters():
            parameter.zero_()
        terms.fc1.weight[:, HEADS:] = -torch.eye(HEADS)
        terms.fc2.weight.copy_(3 * torch.eye(HEADS))
    return encoding, attention


def strong_gates(name, bias):
    """A decoder whose gates forget all, or whose penalties are large: tokens see themselves."""
    encoding = build_position_encoding(name, WIDTH, HEADS, 600, False)
    attention = attention_of(encoding)
    nn.init.constant_(attention.layer_terms.gate.bias, bias)
    return encoding, attention


@pytest.mark.parametrize(
    ("backend", "case"),
    [
        *itertools.product(("eager", "sdpa"), ("dape", "dape-window", "fox", "cable")),
        *(("blocked", name) for name in ("fox", "cable")),
    ],
)
def test_later_tokens_stay_hidden(backend, case):
    """Terms of far and of later keys exceed 10,000, the usual score of hidden keys."""
    name, _, window = case.partition("-")
    how = {"backend": backend, "causal": True, "window": 5 if window else None}
    strong = {"fox": -30.0, "cable": 30.0}
    encoding, attention = strong_gates(name, strong[name]) if name in strong else strong_dape(300)
    length = encoding.shape.max_positions
    x, outputs = normal(1, length, WIDTH, seed=0), []
    for later in (0.0, 1.0):
        changed = x.clone()
        changed[:, length // 2 :] += later
        outputs.append(run(encoding, attention, changed, **how)[:, : length // 2])
    assert torch.equal(*outputs)
    if name in strong:
        assert_close(outputs[0], attention.out_proj(attention.v_proj(x))[:, : length // 2])


def test_autocast_does_not_round_the_correction():
    """Products of queries and keys alone are in bf16."""
    encoding, attention = strong_dape(300)
    x, scores = normal(1, 300, WIDTH, seed=0), []
    backend = Weighing(lambda each: scores.append(each) or each)
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled):
            run(encoding, attention, x, backend=backend)
    assert scores[1].dtype == torch.float32
    assert (scores[1] - scores[0]).abs().max() < 0.1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_padding_stays_hidden(backend, dtype):
    """Of an encoder: f at far keys exceeds 10,000, and padding is far."""
    encoding, attention = strong_dape(300, bidirectional=True)
    attention.to(dtype)
    attention.layer_terms.to(dtype)
    x = normal(2, 300, WIDTH, seed=0).to(dtype)
    mask = torch.zeros(2, 300, dtype=torch.bool)
    mask[1, 150:] = True
    how = {"backend": backend}
    padded = run(encoding, attention, x, padding=mask, **how)[1:, :150]
    alone = run(encoding, attention, x[1:, :150], **how)
    assert alone.isfinite().all()
    torch.testing.assert_close(
        padded, alone, atol=1e-5 if dtype == torch.float32 else 2e-3, rtol=0
    )
