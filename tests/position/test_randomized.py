"""--randomize-positions: what is drawn, and the encodings at the drawn positions."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.attention.cases import (
    EMBED_DIM,
    NUM_HEADS,
    attention_of,
    encoder_of,
    enlarged,
    normal,
    run,
)
from tests.fairseq.decoder.samples import build as build_model
from tests.fairseq.decoder.samples import sentences, targets
from tests.fairseq_commands import parameters, pretrain
from tests.tolerances import assert_close
from tupe_fairseq import PositionEncoding, TUPEConfig, TUPEEncoder, build_position_encoding
from tupe_fairseq.position import POSITION_ENCODINGS, Shape
from tupe_fairseq.position.randomized import RandomizedEncoding

LENGTH, RANGE = 7, 40
NAMES = ("alibi", "learned", "rope", "shaw", "sinusoidal", "t5")
OPTIONS = {
    "t5": {"num_buckets": 8, "max_distance": 20},
    "shaw": {"relative_clip": 5},
    "rope": {"rope_values": True},
}
every_name = pytest.mark.parametrize("name", NAMES)


def build(name, positions=16, randomized=RANGE):
    options = {"randomize_positions": randomized, **OPTIONS.get(name, {})}
    return build_position_encoding(name, EMBED_DIM, NUM_HEADS, positions, **options)


def test_the_encodings_that_take_it():
    taking = [
        name
        for name, cls in POSITION_ENCODINGS.items()
        if "randomize_positions" in {option.name for option in cls.options()}
    ]
    assert taking == list(NAMES)


@settings(max_examples=50)
@given(st.integers(1, 30), st.integers(0, 30), st.booleans(), st.integers(0, 2**31))
def test_a_draw_is_sorted_without_repetition_and_in_range(length, more, distances, seed):
    torch.manual_seed(seed)
    encoding = RandomizedEncoding(Shape(8, 2, length), length + more)
    encoding.draws_distances = distances
    places = encoding.for_pass(length, torch.device("cpu")).drawn.tolist()
    assert len(places) == length
    assert places == sorted(set(places))
    assert places[0] >= 0
    assert places[-1] < length + more
    if distances:
        assert places[0] == 0


@pytest.mark.parametrize(("distances", "share"), [(False, 3 / 8), (True, 2 / 7)])
def test_all_positions_are_equally_likely(distances, share):
    torch.manual_seed(0)
    encoding = RandomizedEncoding(Shape(8, 2, 3), 8)
    encoding.draws_distances = distances
    passes = [encoding.for_pass(3, torch.device("cpu")).drawn for _ in range(2000)]
    counts = torch.cat(passes).bincount(minlength=8)[int(distances) :]
    # Five standard deviations of a binomial distribution.
    assert (counts - 2000 * share).abs().max() < 5 * (2000 * share * (1 - share)) ** 0.5


def places_of(query, drawn, distances):
    """Positions that stand for 0, ..., T − 1 as a query sees them, all at least 0."""
    if not distances:
        return drawn
    return [RANGE + (1 if k > query else -1) * drawn[abs(k - query)] for k in range(LENGTH)]


@every_name
def test_attention_is_that_of_the_drawn_positions(name):
    """As in a longer text without random positions, of which all other words are padding."""
    torch.manual_seed(0)
    encoding = enlarged(build(name), 1).double()
    attention = enlarged(attention_of(encoding), 2).double()
    whole = build(name, RANGE if name == "learned" else 2 * RANGE, 0).double()
    whole.load_state_dict(encoding.state_dict())
    x = normal(1, LENGTH, EMBED_DIM, seed=0, dtype=torch.float64)
    seen = encoding.for_pass(LENGTH, x.device)
    found = run(seen, attention, x)
    longest = whole.shape.max_positions
    for query in range(LENGTH):
        places = places_of(query, seen.drawn.tolist(), encoding.draws_distances)
        text, padding = x.new_zeros(1, longest, EMBED_DIM), torch.ones(1, longest).bool()
        text[:, places], padding[:, places] = x, False
        expected = run(whole, attention, text, padding, backend="eager")
        assert_close(found[:, query], expected[:, places[query]])


@every_name
def test_a_forward_pass_is_reproduced_by_its_seed_and_by_checkpointing(name):
    def run(seed, **options):
        torch.manual_seed(0)
        more = OPTIONS.get(name, {}) | {"randomize_positions": RANGE}
        encoder = enlarged(encoder_of(name, 16, options=more, **options), 3)
        torch.manual_seed(seed)
        out = encoder(normal(2, LENGTH, EMBED_DIM, seed=0))
        torch.manual_seed(99)
        out.square().sum().backward()
        return [out, *(p.grad for p in encoder.parameters())]

    first = run(1)
    assert all(map(torch.equal, first, run(1)))
    assert all(map(torch.equal, first, run(1, checkpoint_activations=True)))
    assert not torch.equal(first[0], run(2)[0])


@torch.no_grad()
def test_models_ask_for_a_draw_once_for_each_forward_pass(monkeypatch):
    calls = []
    monkeypatch.setattr(
        PositionEncoding, "for_pass", lambda self, length, *_: calls.append(length) or self
    )
    build_model("tupe_r", "tupe_transformer")(sentences(2, 9), None, targets(2, 6))
    build_model("tupe_r", "tupe_transformer_lm")(targets(2, 7))
    TUPEEncoder(TUPEConfig(d_model=16, num_heads=2))(torch.randn(2, 5, 16))
    assert calls == [9, 6, 7, 5]


@every_name
@torch.no_grad()
def test_incremental_decoding_spreads_the_positions_evenly(name, monkeypatch):
    model = build_model(name, "tupe_transformer_lm", randomize_positions=200)
    encoding, tokens = model.decoder.embed_positions, targets(2, 6)
    assert encoding.positions(0, 4, torch.device("cpu")).tolist() == [0, 2, 5, 7]
    monkeypatch.setattr(type(encoding), "for_pass", PositionEncoding.for_pass)
    expected, _ = model(tokens)
    state: dict = {}
    steps = [model.decoder(tokens[:, : i + 1], incremental_state=state)[0] for i in range(6)]
    assert_close(torch.cat(steps, 1), expected)


@pytest.mark.parametrize("name", ["rope", "t5"])
def test_resumed_training_is_bit_identical(toy_masked_lm_data, tmp_path, name):
    flags = ("--position-encoding", name, "--randomize-positions", 100, "--dropout", 0.1)
    whole = pretrain(toy_masked_lm_data, tmp_path / "whole", *flags, "--max-update", 4)
    saving = ("--checkpoint-activations",)
    pretrain(toy_masked_lm_data, tmp_path / "parts", *flags, *saving, "--max-update", 2)
    resumed = pretrain(toy_masked_lm_data, tmp_path / "parts", *flags, *saving, "--max-update", 4)
    found, expected = parameters(resumed), parameters(whole)
    assert all(torch.equal(found[key], expected[key]) for key in expected)
