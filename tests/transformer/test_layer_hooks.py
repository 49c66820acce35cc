"""A stack is its layers one after another, each over what the encoding is there.

By encodings whose scores, or windows and rotations, differ by layer, and by one with terms of each
layer.
"""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.attention.cases import (
    EMBED_DIM,
    encoder_of,
    enlarged,
    normal,
    padding_mask,
    prepared_for,
)
from tests.tolerances import assert_close, assert_gradients_close
from tupe_fairseq import PositionEncoding, UsageError
from tupe_fairseq.attention import Layout

LAYERS = 3
LENGTH = 11
OPTIONS = {
    "fire": {"fire_width": 2, "fire_threshold": 4},
    "rope": {
        "rope_theta": 1000.0,
        "rope_theta_local": 10.0,
        "attention_window": 2,
        "global_every": 2,
    },
    "transformer_xl": {},
}


def build(name, backend="auto", causal=False):
    """Pre-LN layers without a LayerNorm after the last."""
    how = {"normalize_before": True, "final_norm": False, "num_layers": LAYERS}
    options = {"bidirectional": False, **OPTIONS[name]}
    how |= {"attention_backend": backend, "causal": causal, "options": options}
    return enlarged(encoder_of(name, LENGTH, **how), 1)


def by_layers(encoder, x, padding):
    """Written out over attention by `eager`, which tests/attention compares with loops."""
    encoding = encoder.embed_positions
    layout = Layout(*x.shape[:2], padding)
    for index, layer in enumerate(encoder.layers):
        how = {"window": encoding.shape.window_at(index), "causal": encoder.layers.config.causal}
        norm = layer.self_attn_layer_norm(x)
        prepared = prepared_for(
            encoding, layer.self_attn, norm, layout, layer=index, backend="eager", **how
        )
        x = x + layer.self_attn(norm, prepared)
        x = x + layer.fc2(F.gelu(layer.fc1(layer.final_layer_norm(x))))
    return x


def with_gradients(outputs, encoder, x, padding):
    """The outputs at tokens, and the gradients of a weighted sum of them by name."""
    x = x.detach().requires_grad_()
    out = outputs(x, padding)
    tokens = slice(None) if padding is None else ~padding
    loss = (out[tokens] * normal(*out.shape, seed=3)[tokens]).sum()
    named = {"x": x, **dict(encoder.named_parameters())}
    grads = torch.autograd.grad(loss, named.values(), allow_unused=True, materialize_grads=True)
    return out[tokens], {name: g.float() for name, g in zip(named, grads, strict=True)}


@pytest.mark.parametrize(
    ("padding", "causal"),
    [(None, False), (padding_mask(LENGTH, 0, 4), False), (None, True)],
    ids=["full", "padded", "causal"],
)
@pytest.mark.parametrize("backend", ["blocked", "eager", "sdpa"])
@pytest.mark.parametrize("name", OPTIONS)
def test_output_and_gradients_are_those_of_the_layers(name, backend, padding, causal):
    encoder = build(name, backend, causal)
    x = normal(2, LENGTH, EMBED_DIM, seed=0)
    exact = copy.deepcopy(encoder).double()
    found, of_found = with_gradients(encoder, encoder, x, padding)
    expected, of_expected = with_gradients(
        lambda *given: by_layers(exact, *given), exact, x.double(), padding
    )
    assert_close(found, expected)
    assert_gradients_close(of_found, of_expected, torch.float32)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("rope", "restrict attention to a window"),
        ("fire", "bias that depends on the distance"),
    ],
)
def test_what_is_not_served_is_refused_when_built(name, reason):
    with pytest.raises(UsageError, match=f"'flash', but .*{reason}; use auto or eager"):
        build(name, "flash")


@pytest.mark.parametrize(("name", "scores"), [("fire", 3), ("rope", 2), ("transformer_xl", 1)])
def test_layers_that_see_the_same_share_one_score(name, scores, monkeypatch):
    encoder = build(name, "eager")
    calls = []
    for module in encoder.embed_positions.modules():
        score = module.attention_bias if isinstance(module, PositionEncoding) else None
        if score is not None:
            monkeypatch.setattr(
                module, "attention_bias", lambda *a, f=score, m=module: calls.append(m) or f(*a)
            )
    encoder(normal(1, LENGTH, EMBED_DIM, seed=0))
    assert len(calls) == len(set(calls)) == scores


def test_layers_have_the_parameters_of_their_number():
    encoding = build("fire").embed_positions
    for index in range(LAYERS):
        assert encoding.at(index).w is encoding.get_parameter(f"layers.{index}.w")


def test_every_layer_owns_its_terms():
    layers = build("transformer_xl").layers
    assert len({term.r_proj.weight for term in layers.terms()}) == LAYERS
    assert list(layers[:2]) == [layers[0], layers[1]]
    assert isinstance(layers[:2], nn.ModuleList)
