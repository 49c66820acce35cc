"""What the parameters of each encoding begin at."""

import math

import pytest
import torch
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from torch import nn

from tests.attention.cases import encoder_of
from tupe_fairseq.position import POSITION_ENCODINGS, build_position_encoding

WIDTH = 256
HEADS = 8
POSITIONS = 512
VOCAB_SIZE = 100
#: Mean and deviation of normal numbers.
SMALL = (0.0, 0.02)
NEAR_ONE = (1.0, 0.02)


def up_to(bound):
    """Bounds of uniform numbers around 0."""
    return {-bound, bound}


def as_torch(fan_in):
    """As `nn.Linear`, `nn.Conv1d` and, of their width, recurrent layers begin."""
    return up_to(fan_in**-0.5)


TUPE = {
    "weight": SMALL,
    "layer_norm.weight": 1.0,
    "layer_norm.bias": 0.0,
    **{f"{name}.weight": SMALL for name in ("q_proj", "k_proj")},
    **{f"{name}.bias": 0.0 for name in ("q_proj", "k_proj")},
}
#: Of each parameter: mean and deviation, or bounds, or the value.
BEGINNINGS = {
    "cnn": {"conv.weight": as_torch(16 * 31), "conv.bias": as_torch(16 * 31)},
    "complex_order": {
        "phase": 0.0,
        # Of all words, from 1 to 1/10000.
        "frequency": torch.tensor([10000 ** (-c / WIDTH) for c in range(WIDTH)]),
        "readout.weight": as_torch(2 * WIDTH),
    },
    "deberta": {
        "weight": SMALL,
        **{f"terms.pos_{x}_proj.weight": as_torch(WIDTH) for x in "qk"},
        **{f"terms.pos_{x}_proj.bias": as_torch(WIDTH) for x in "qk"},
    },
    "fire": {
        "layers.0.c": 0.1,
        "layers.0.w": 1.0,
        "layers.0.hidden_weight": up_to(1),
        "layers.0.hidden_bias": up_to(1),
        "layers.0.weight": as_torch(32),
        "layers.0.bias": as_torch(32),
    },
    "floater": {
        "first": SMALL,
        **{f"dynamics.0.{name}": as_torch(WIDTH + 1) for name in ("weight", "bias")},
        **{f"dynamics.2.{name}": 0.0 for name in ("weight", "bias")},
    },
    "hierarchical": {"weight": SMALL},
    "kerple_log": {"strength": {0.0, 2.0}, "rate": {0.0, 1.0}},
    "kerple_power": {"exponent": {0.0, 2.0}, "slope": {0.0, 1.0}},
    "learned": {"weight": SMALL},
    "mpnet": {"weight": SMALL, "relative_bias.weight": SMALL},
    "multiplicative": {"weight": NEAR_ONE},
    "pope": {"terms.phase": 0.0},
    "rnn": {
        f"from_{side}.{kind}_{part}_l0": as_torch(WIDTH // 2)
        for side in ("left", "right")
        for kind in ("weight", "bias")
        for part in ("ih", "hh")
    },
    "shaw": {"terms.key": SMALL, "terms.value_weight": SMALL},
    "t5": {"relative_bias.weight": SMALL},
    "transformer_xl": {
        "terms.content_bias": SMALL,
        "terms.position_bias": SMALL,
        "terms.r_proj.weight": as_torch(WIDTH),
    },
    "tupe_a": TUPE,
    "tupe_r": {**TUPE, "relative_bias.weight": SMALL},
}


def test_learned_positions_from_sinusoids():
    learned = build_position_encoding("learned", 4, 1, 10, from_sinusoids=True)
    row = [0.06 * 2**0.5 * f(7 * speed) for speed in (1, 0.01) for f in (math.sin, math.cos)]
    # fairseq's row of position 7 is 9.
    torch.testing.assert_close(learned.weight[9], torch.tensor(row))
    assert not learned.weight[1].any()
    assert learned.weight.requires_grad


@pytest.mark.parametrize("name", list(POSITION_ENCODINGS))
def test_beginnings(name):
    torch.manual_seed(0)
    sides = not POSITION_ENCODINGS[name].causal_only
    encoding = build_position_encoding(
        name, WIDTH, HEADS, POSITIONS, sides, vocab_size=VOCAB_SIZE, num_layers=1
    )
    found = dict(encoding.named_parameters())
    terms = encoding.at(0).build_layer_terms()
    if terms is not None:
        found |= {f"terms.{key}": p for key, p in terms.named_parameters()}
    expected = BEGINNINGS.get(name, {})
    assert found.keys() == expected.keys()
    for key, beginning in expected.items():
        values = found[key].detach()
        match beginning:
            case float():
                assert (values == beginning).all(), key
            case torch.Tensor():
                torch.testing.assert_close(values, beginning.expand_as(values))
            case (mean, deviation):
                assert values.mean().item() == pytest.approx(mean, abs=deviation / 5), key
                assert values.std().item() == pytest.approx(deviation, rel=0.1), key
            case set():
                low, high = sorted(beginning)
                assert low <= values.min() < low + 0.3 * (high - low), key
                assert high - 0.3 * (high - low) < values.max() <= high, key


@pytest.mark.parametrize("name", list(POSITION_ENCODINGS))
def test_fairseq_initialises_linear_layers_alone(name):
    """FIRE's functions would begin near 0."""
    causal = POSITION_ENCODINGS[name].causal_only
    encoder = encoder_of(name, 64, 64, 8, causal=causal)
    before = {name: p.clone() for name, p in encoder.named_parameters()}
    encoder.apply(init_bert_params)
    for key, value in encoder.named_parameters():
        module = encoder.get_submodule(key.rpartition(".")[0])
        assert isinstance(module, nn.Linear) or torch.equal(value, before[key]), key
