"""Random positions: `for_pass` is called once per forward pass, and all hooks see its draw."""

import copy

import pytest
import torch

from tests.attention.cases import normal, padding_mask
from tests.decoder.samples import build, sentences, targets
from tupe_fairseq import PositionEncoding, TUPEConfig, TUPEEncoder
from tupe_fairseq.modules.encoder import Encoder
from tupe_fairseq.position import AttentionBias, Shape
from tupe_fairseq.position.indices import distances

WIDTH, HEADS, LENGTH = 12, 3, 7


class Drawn(PositionEncoding):
    """A factor from [1, 2) for each forward pass, which acts in every hook."""

    def __init__(self, shape):
        super().__init__(shape)
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.factor = None

    def for_pass(self, length, device):
        drawn = copy.copy(self)
        drawn.factor = 1 + torch.rand((), device=device)
        return drawn

    def embed(self, x, tokens=None, padding_mask=None, start=0):
        return x * self.factor * self.weight

    def rotate(self, q, k, v, start=0):
        return q * self.factor, k * self.weight, v

    def attention_bias(self, queries, keys, start=0):
        bias = -self.factor * self.weight * distances(queries, keys, start).abs()
        return AttentionBias(keys, by_distance=bias.expand(HEADS, -1), start=start)


def encoder_of(layers, **options):
    encoding = Drawn(Shape(WIDTH, HEADS, LENGTH))
    return Encoder(encoding, layers, 16, dropout=0.0, attention_dropout=0.0, **options)


def test_activation_checkpointing_recomputes_with_the_same_draw():
    results = []
    for saving in (False, True):
        torch.manual_seed(0)
        encoder = encoder_of(2, checkpoint_activations=saving)
        torch.manual_seed(1)
        x = normal(2, LENGTH, WIDTH, seed=0).requires_grad_()
        out = encoder(x, padding_mask(LENGTH, 0, 3))
        # Whatever is drawn in between must not matter.
        torch.manual_seed(2)
        out.square().sum().backward()
        results.append([out, x.grad, *(p.grad for p in encoder.parameters())])
    assert results[0][1].any()
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


def test_a_new_draw_for_each_pass_shares_the_parameters():
    encoder = encoder_of(1).eval()
    x = normal(1, LENGTH, WIDTH, seed=0)
    first, second = encoder(x), encoder(x)
    assert not torch.equal(first, second)
    (first + second).sum().backward()
    assert encoder.embed_positions.weight.grad.abs() > 0
    assert encoder.embed_positions.factor is None


@pytest.fixture
def calls(monkeypatch):
    """The lengths for which an encoding without random positions is asked."""
    found = []
    monkeypatch.setattr(
        PositionEncoding, "for_pass", lambda self, length, device: found.append(length) or self
    )
    return found


@torch.no_grad()
def test_every_model_asks_once_for_each_forward_pass(calls):
    model = build("tupe_r", "tupe_transformer")
    model(sentences(2, 9), None, targets(2, 6))
    assert calls == [9, 6]
    calls.clear()
    build("tupe_r", "tupe_transformer_lm")(targets(2, 6))
    assert calls == [6]
    calls.clear()
    TUPEEncoder(TUPEConfig(d_model=16, num_heads=2))(torch.randn(2, 5, 16))
    assert calls == [5]


@torch.no_grad()
def test_incremental_decoding_does_not_ask(calls):
    model, state = build("tupe_r", "tupe_transformer_lm"), {}
    for length in (1, 2):
        model.decoder(targets(2, 6)[:, :length], incremental_state=state)
    assert not calls
