"""Hooks that differ by layer or read the layer's input, by encodings that need them.

Each encoding is compared with float64 loops, layer by layer, in every backend that serves it, with
gradients; and token by token in incremental decoding.
"""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.attention.cases import BACKENDS, enlarged, normal, padding_mask
from tests.reference import fire
from tests.reference.attention import attend, bias_table, project_moved
from tests.reference.rope import rotate
from tests.tolerances import assert_close, assert_gradients_close
from tupe_fairseq import PositionEncoding, UsageError
from tupe_fairseq.attention import ATTENTION_BACKENDS, LayerPlan
from tupe_fairseq.modules.decoding import DecoderCache
from tupe_fairseq.modules.stack import TransformerStack
from tupe_fairseq.position import build_position_encoding
from tupe_fairseq.position.bias import HIDDEN

WIDTH, HEADS, LAYERS, LENGTH = 12, 3, 3, 11
PADDING = padding_mask(LENGTH, 0, 4)
WINDOW, THETAS = 2, (1000.0, 10.0)
FIRE = {"fire_width": 2, "fire_threshold": 4}
#: Scores, and windows and rotations, that differ by layer; and scores of the layer's input.
OPTIONS = {
    "fire": FIRE,
    "rope": {
        **{"rope_theta": THETAS[0], "rope_theta_local": THETAS[1]},
        **{"attention_window": WINDOW, "global_every": 2},
    },
    "fox": {},
}
every_encoding = pytest.mark.parametrize("name", list(OPTIONS))


def encoding_of(name):
    return build_position_encoding(
        name, WIDTH, HEADS, LENGTH, False, num_layers=LAYERS, **OPTIONS[name]
    )


def reference_terms(name, encoding, layer, weights):
    """A function of a sequence, T×C in float64: the keywords of the loops for this layer."""
    if name == "fire":
        own = {f"layers.0.{key}": p.double() for key, p in encoding.at(layer).named_parameters()}
        table = biased(LENGTH, lambda h, i, j: fire.bias(h, i, j, own, HEADS, **FIRE))
        return lambda x: {"positional": table[:, : len(x), : len(x)]}
    if name == "fox":
        gate = [weights[f"layer_terms.gate.{key}"] for key in ("weight", "bias")]

        def forgotten(x):
            logs = [F.logsigmoid(gate[0].mv(row) + gate[1]) for row in x]
            sums = [sum(logs[: i + 1]) for i in range(len(x))]
            return {"positional": biased(len(x), lambda h, i, j: sums[i][h] - sums[j][h])}

        return forgotten

    def turn(kind, head, k):
        return head if kind == "v_proj" else rotate(head, k, THETAS[layer % 2])

    reach = WINDOW if layer % 2 else LENGTH
    hidden = biased(LENGTH, lambda h, i, j: torch.tensor(HIDDEN * (abs(i - j) > reach)))
    project = project_moved(turn)
    return lambda x: {"positional": hidden[:, : len(x), : len(x)], "project": project}


def biased(length, bias):
    return bias_table(bias, HEADS, length, length)


def by_loops(name, encoder, x, padding=None):
    """Pre-LN layers written out: B×T×C in float64."""
    lengths = [LENGTH] * len(x) if padding is None else (~padding).sum(1).tolist()
    rows = [row[:length] for row, length in zip(x.double(), lengths, strict=True)]
    for index, layer in enumerate(encoder.layers):
        weights = {key: p.double() for key, p in layer.self_attn.named_parameters()}
        terms_of = reference_terms(name, encoder.embed_positions, index, weights)
        fc1, fc2 = ((m.weight.double(), m.bias.double()) for m in (layer.fc1, layer.fc2))
        for b, row in enumerate(rows):
            norm = normalised(row, layer.self_attn_layer_norm)
            terms, later = terms_of(norm), torch.ones(len(row), len(row)).triu(1)
            terms["positional"] = terms["positional"] + HIDDEN * later * encoder.layers.causal
            row = row + attend(norm[None], weights, HEADS, **terms)[0][0]
            norm = normalised(row, layer.final_layer_norm)
            rows[b] = row + F.linear(F.gelu(F.linear(norm, *fc1)), *fc2)
    return torch.stack([F.pad(row, (0, 0, 0, LENGTH - len(row))) for row in rows])


def normalised(x, norm):
    return F.layer_norm(x, (WIDTH,), norm.weight.double(), norm.bias.double())


def encoder_of(name, backend="auto", causal=False):
    encoder = TransformerStack(
        encoding_of(name), LAYERS, 16, dropout=0.0, attention_dropout=0.0, normalize_before=True,
        attention_backend=backend, causal=causal, final_norm=False,
    )  # fmt: skip
    return enlarged(encoder, 1)


def served_by(backend, encoding):
    features = []
    for index in range(LAYERS):
        seen, window = encoding.at(index), encoding.shape.window_at(index)
        features.append(LayerPlan.of(seen, seen.build_layer_terms(), window).needs)
    return not any(map(ATTENTION_BACKENDS[backend].unsupported, features))


PAIRS = [
    (backend, name)
    for name in OPTIONS
    for backend in BACKENDS
    if served_by(backend, encoding_of(name))
]


def with_gradients(outputs, encoder, padding):
    """The outputs at tokens, and the gradients of a weighted sum of them by name."""
    x = normal(2, LENGTH, WIDTH, seed=0).requires_grad_()
    out = outputs(x, padding)
    tokens = slice(None) if padding is None else ~padding
    loss = (out[tokens] * normal(*out.shape, seed=3)[tokens]).sum()
    parameters = {"x": x, **dict(encoder.named_parameters())}
    found = torch.autograd.grad(
        loss, parameters.values(), allow_unused=True, materialize_grads=True
    )
    return out.detach()[tokens], dict(zip(parameters, map(torch.Tensor.float, found), strict=True))


@functools.cache
def expected_of(name, padding):
    encoder = encoder_of(name)
    return with_gradients(functools.partial(by_loops, name, encoder), encoder, padding)


@pytest.mark.parametrize("padding", [None, PADDING], ids=["full", "padded"])
@pytest.mark.parametrize(("backend", "name"), PAIRS)
def test_output_and_gradients_equal_the_loops(backend, name, padding):
    encoder = encoder_of(name, backend)
    found, of_found = with_gradients(encoder, encoder, padding)
    expected, of_expected = expected_of(name, padding)
    assert_close(found, expected)
    assert_gradients_close(of_found, of_expected, torch.float32)


def cache_of(encoder):
    return DecoderCache(encoder.embed_positions, encoder.layers)


@torch.no_grad()
@every_encoding
def test_decoder_equals_the_loops_at_once_and_token_by_token(name):
    encoder, x = encoder_of(name, causal=True), normal(2, LENGTH, WIDTH, seed=0)
    expected, cache = by_loops(name, encoder, x), cache_of(encoder)
    assert_close(encoder(x), expected)
    found = [encoder.extend(token, cache).x for token in x.split(1, 1)]
    assert_close(torch.cat(found, 1), expected)


@pytest.mark.parametrize(
    ("backend", "name", "reason"),
    [
        ("flash", "rope", "restrict attention to a window"),
        ("flash", "fire", "bias that depends on the distance"),
    ],
)
def test_what_is_not_served_is_refused_when_built(backend, name, reason):
    with pytest.raises(UsageError, match=f"'{backend}', but .*{reason}; use auto or eager"):
        encoder_of(name, backend)


@every_encoding
def test_layers_that_see_the_same_share_one_score(name, monkeypatch):
    encoder, calls = encoder_of(name, "eager"), []
    for module in encoder.embed_positions.modules():
        score = module.attention_bias if isinstance(module, PositionEncoding) else None
        if score is not None:
            monkeypatch.setattr(
                module, "attention_bias", lambda *a, f=score, m=module: calls.append(m) or f(*a)
            )
    encoder(normal(1, LENGTH, WIDTH, seed=0))
    expected = {"fire": 3, "rope": 2, "fox": 1}[name]
    assert len(calls) == len(set(calls)) == expected


def test_every_layer_owns_its_terms():
    terms = encoder_of("fox").layers.terms()
    assert len({term.gate.weight for term in terms}) == LAYERS


def test_a_slice_of_layers_is_a_list_of_layers():
    layers = encoder_of("fox").layers
    assert list(layers[:2]) == [layers[0], layers[1]]
    assert isinstance(layers[:2], nn.ModuleList)
