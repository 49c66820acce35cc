"""--log-scaling-floor: the attention weights, the layers, decoding, and what is refused."""

import math
from argparse import Namespace

import pytest
import torch

from tests.attention.cases import (
    BACKENDS,
    EMBED_DIM,
    NUM_HEADS,
    OPTIONS,
    VOCAB_SIZE,
    attention_of,
    encoder_of,
    enlarged,
    gradients,
    layer_values,
    normal,
    run,
    run_with_weights,
    words,
)
from tests.tolerances import assert_close, assert_gradients_close
from tests.toy_data import Task
from tupe_fairseq import UsageError, build_position_encoding
from tupe_fairseq.attention import ATTENTION_BACKENDS, required_features
from tupe_fairseq.models.tupe_transformer import TupeTransformerModel
from tupe_fairseq.models.tupe_transformer_lm import TupeTransformerLM
from tupe_fairseq.modules.cache import DecoderCache
from tupe_fairseq.position import POSITION_ENCODINGS

LENGTH, FLOOR, ALPHA = 9, 3, 0.7
SCALING = {"log_scaling_floor": FLOOR, "log_scaling_alpha": ALPHA}
#: FLOATER's solver takes other steps in float64; its attention is that of `learned`.
NAMES = sorted(set(POSITION_ENCODINGS) - {"floater"})


def build(name, dtype=torch.float32, **scaling):
    options = {**OPTIONS.get(name, {}), "bidirectional": False, "vocab_size": VOCAB_SIZE}
    encoding = build_position_encoding(name, EMBED_DIM, NUM_HEADS, LENGTH, **options, **scaling)
    attention = attention_of(encoding)
    return enlarged(encoding, 1).to(dtype), enlarged(attention, 2).to(dtype)


def by_powers_of_weights(encoding, attention, x):
    """Softmax of scores times a factor: the weights without it to that power, over their sum."""
    _, weights = run_with_weights(encoding, attention, x, causal=True)
    x, seen = encoding.embed(x, words(x)), encoding.at(0)
    factors = [1 + ALPHA * math.log(max(1, (i + 1) / FLOOR)) for i in range(LENGTH)]
    weights = weights ** x.new_tensor(factors)[:, None]
    weights = weights / weights.sum(-1, keepdim=True)
    if encoding.multiplies_weights:
        weights = weights * encoding.attention_bias(LENGTH, LENGTH).factors().dense()
    v = attention.per_head(attention.v_proj(x))
    if encoding.uses("rotate"):
        v = encoding.rotate(v, v, v)[2]
    out = weights @ v
    if attention.layer_terms is not None and attention.layer_terms.has_values:
        out = out + layer_values(attention.layer_terms, weights, seen)
    return attention.out_proj(out.transpose(1, 2).flatten(2))


def served(backend, name):
    encoding, attention = build(name, **SCALING)
    required = required_features(encoding.at(0), attention.layer_terms, decoder=True)
    return not ATTENTION_BACKENDS[backend].unsupported(required)


PAIRS = [(backend, name) for name in NAMES for backend in BACKENDS if served(backend, name)]


@pytest.mark.parametrize(("backend", "name"), PAIRS)
def test_scores_of_a_token_are_multiplied_by_its_factor(backend, name):
    encoding, attention = build(name, **SCALING)
    x = normal(2, LENGTH, EMBED_DIM, seed=0).requires_grad_()
    found = run(encoding, attention, x, backend=backend, causal=True)
    with torch.no_grad():
        evaluated = run(encoding, attention, x, backend=backend, causal=True)
    exact, exact_attention = build(name, torch.float64)
    wide = x.detach().double().requires_grad_()
    expected = by_powers_of_weights(exact, exact_attention, wide)
    assert_close(found, expected)
    assert_close(evaluated, expected)
    assert_gradients_close(
        gradients(found, x, encoding, attention),
        gradients(expected, wide, exact, exact_attention),
        torch.float32,
    )


def test_products_alone_are_scaled_in_their_vectors():
    """As `flash` computes them, which hides no later token."""
    encoding, attention = build("tupe_a", tie_cls=True, **SCALING)
    x = normal(2, LENGTH, EMBED_DIM, seed=0)
    found, expected = (run(encoding, attention, x, backend=b) for b in ("flash", "eager"))
    assert_close(found, expected)


@torch.no_grad()
@pytest.mark.parametrize("name", ["none", "t5", "fox", "shaw", "relative_bank", "urpe", "dape"])
def test_decoding_token_by_token(name):
    options = {"bidirectional": False, **SCALING}
    decoder = enlarged(encoder_of(name, LENGTH, options=options, causal=True), 1)
    x = normal(2, LENGTH, EMBED_DIM, seed=0)
    cache = DecoderCache(decoder.embed_positions, decoder.layers)
    found = [decoder.extend(token, cache).x for token in x.split(1, 1)]
    assert_close(torch.cat(found, 1), decoder(x))


@torch.no_grad()
def test_layers_with_a_window_are_not_scaled():
    x, outputs = normal(2, LENGTH, EMBED_DIM, seed=0), []
    for scaling in ({}, SCALING):
        options = {"bidirectional": False, "attention_window": 4, **scaling}
        decoder = enlarged(encoder_of("t5", LENGTH, options=options, causal=True), 1)
        outputs.append(decoder(x))
    assert torch.equal(*outputs)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"log_scaling_floor": 0}, "--log-scaling-floor is 0, but must be at least 1"),
        ({"log_scaling_alpha": -0.1}, "--log-scaling-alpha must be .* at least 0, but is -0.1"),
        ({"log_scaling_alpha": math.nan}, "--log-scaling-alpha must be .*, but is nan"),
    ],
)
def test_scalings_without_a_meaning(given, message):
    for model in (TupeTransformerLM, TupeTransformerModel):
        with pytest.raises(UsageError, match=message):
            model.build_model(Namespace(**given), Task())
    with pytest.raises(UsageError, match=message) as raised:
        build_position_encoding("rope", 8, 2, LENGTH, False, **given)
    assert "\n" not in str(raised.value)


def test_an_encoder_is_refused():
    with pytest.raises(
        UsageError, match=r"--log-scaling-floor is 3, but .* in an encoder it sees all"
    ):
        build_position_encoding("rope", 8, 2, LENGTH, **SCALING)


def test_sums_that_a_backend_would_round_are_refused():
    """In half precision, the parts of a sum would each be rounded when queries are scaled."""
    encoding, attention = build("fox", **SCALING)
    x = normal(2, LENGTH, EMBED_DIM, seed=0)
    with pytest.raises(
        UsageError, match="is 'sdpa', but it cannot scale scores that are products"
    ):
        run(encoding, attention, x, backend="sdpa", causal=True)
