"""DAPE, FoX and CABLE where what they add to the scores is large: hidden tokens stay hidden."""

import pytest
import torch
from torch import nn

from tests.attention.cases import layer_scores, normal
from tests.tolerances import assert_close
from tupe_fairseq.attention import TupeMultiheadAttention, share_attention
from tupe_fairseq.position import build_position_encoding

WIDTH, HEADS = 8, 2


def strong_dape(length):
    """A decoder's encoding, b = −d^1.9 per head, and its terms with f = −3b."""
    encoding = build_position_encoding(
        "dape", WIDTH, HEADS, length, False, dape_base="kerple_power", dape_width=HEADS
    )
    # b_ij = −slope · |i − j|^exponent, with the largest that training allows.
    with torch.no_grad():
        encoding.base.slope.fill_(1.0)
        encoding.base.exponent.fill_(1.9)
    terms = encoding.build_layer_terms()
    for parameter in terms.parameters():
        nn.init.zeros_(parameter)
    with torch.no_grad():
        terms.fc1.weight[:, HEADS:] = -torch.eye(HEADS)
        terms.fc2.weight.copy_(3 * torch.eye(HEADS))
    return encoding, terms


def strong_fox(length):
    """A decoder's encoding whose gates forget all: each token sees itself alone."""
    encoding = build_position_encoding("fox", WIDTH, HEADS, length, False)
    terms = encoding.build_layer_terms()
    nn.init.constant_(terms.gate.bias, -30.0)
    return encoding, terms


def strong_cable(length):
    """The same by penalties."""
    encoding = build_position_encoding("cable", WIDTH, HEADS, length, False)
    terms = encoding.build_layer_terms()
    nn.init.constant_(terms.gate.bias, 30.0)
    return encoding, terms


@pytest.mark.parametrize(
    ("build", "length", "backend", "window"),
    [
        *((strong_dape, 300, backend, w) for backend in ("eager", "sdpa") for w in (None, 5)),
        *((strong_fox, 600, backend, None) for backend in ("blocked", "eager", "sdpa")),
        *((strong_cable, 600, backend, None) for backend in ("blocked", "eager", "sdpa")),
    ],
)
def test_later_tokens_stay_hidden(build, length, backend, window):
    """Terms of far and of later keys exceed 10,000, the usual score of hidden keys."""
    encoding, terms = build(length)
    attention = TupeMultiheadAttention(WIDTH, HEADS, layer_terms=terms)
    how = {"layer_terms": terms, "backend": backend, "causal": True, "window": window}
    x, found = normal(1, length, WIDTH, seed=0), []
    for later in (0.0, 1.0):
        changed = x.clone()
        changed[:, length // 2 :] += later
        found.append(attention(changed, share_attention(encoding, changed, **how)))
    before = slice(length // 2)
    assert torch.equal(found[0][:, before], found[1][:, before])
    if build is not strong_dape:
        assert_close(found[0], attention.out_proj(attention.v_proj(x)))


def test_autocast_does_not_round_the_correction():
    encoding, terms = strong_dape(300)
    q, k = normal(2, 1, HEADS, 300, WIDTH // HEADS, seed=0)
    expected = layer_scores(terms, q, k, encoding)
    with torch.autocast("cpu", torch.bfloat16):
        found = layer_scores(terms, q, k, encoding)
    assert found.dtype == torch.float32
    # Products of queries and keys alone are in bf16.
    assert (found - expected).abs().max() < 0.1
