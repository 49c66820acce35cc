"""DAPE where the bias that it corrects is large."""

import pytest
import torch
from torch import nn

from tests.attention.cases import layer_scores, normal
from tupe_fairseq.attention import TupeMultiheadAttention, share_attention
from tupe_fairseq.position import build_position_encoding

LENGTH, WIDTH, HEADS = 300, 8, 2


def strong_terms():
    """A decoder's encoding, b = −d^1.9 per head, and its terms with f = −3b."""
    encoding = build_position_encoding(
        "dape", WIDTH, HEADS, LENGTH, False, dape_base="kerple_power", dape_width=HEADS
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


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_later_tokens_stay_hidden(backend, window):
    """f of keys at far distances exceeds 10,000, the usual score of hidden keys."""
    encoding, terms = strong_terms()
    attention = TupeMultiheadAttention(WIDTH, HEADS, layer_terms=terms)
    how = {"layer_terms": terms, "backend": backend, "causal": True, "window": window}
    x, found = normal(1, LENGTH, WIDTH, seed=0), []
    for later in (0.0, 1.0):
        changed = x.clone()
        changed[:, LENGTH // 2 :] += later
        found.append(attention(changed, share_attention(encoding, changed, **how)))
    before = slice(LENGTH // 2)
    assert torch.equal(found[0][:, before], found[1][:, before])


def test_autocast_does_not_round_the_correction():
    encoding, terms = strong_terms()
    q, k = normal(2, 1, HEADS, LENGTH, WIDTH // HEADS, seed=0)
    expected = layer_scores(terms, q, k, encoding)
    with torch.autocast("cpu", torch.bfloat16):
        found = layer_scores(terms, q, k, encoding)
    assert found.dtype == torch.float32
    # Products of queries and keys alone are in bf16.
    assert (found - expected).abs().max() < 0.1
