"""--randomize-positions: what is drawn, and the encodings at the drawn positions."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.attention.cases import (
    EMBED_DIM,
    NUM_HEADS,
    enlarged,
    layer_scores,
    layer_values,
    normal,
)
from tests.decoder.samples import build as build_model
from tests.decoder.samples import sentences, targets
from tests.fairseq_commands import parameters, pretrain
from tests.reference.buckets import bucket
from tests.reference.rope import rotate
from tests.tolerances import assert_close
from tupe_fairseq import PositionEncoding, TUPEConfig, TUPEEncoder, build_position_encoding
from tupe_fairseq.modules.encoder import Encoder
from tupe_fairseq.position import POSITION_ENCODINGS, Shape
from tupe_fairseq.position.randomized import RandomizedEncoding

LENGTH, RANGE = 7, 40
NAMES = ("alibi", "learned", "rope", "shaw", "sinusoidal", "t5")
BUCKETS = {"num_buckets": 8, "max_distance": 20}
OPTIONS = {"t5": BUCKETS, "shaw": {"relative_clip": 5}}
every_name = pytest.mark.parametrize("name", NAMES)


def build(name, **options):
    options = {"randomize_positions": RANGE, **OPTIONS.get(name, {}), **options}
    return enlarged(build_position_encoding(name, EMBED_DIM, NUM_HEADS, 16, **options), 1).double()


def drawn_for(encoding, seed=0):
    torch.manual_seed(seed)
    seen = encoding.for_pass(LENGTH, torch.device("cpu"))
    return seen, seen.drawn.tolist()


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


@pytest.mark.parametrize("name", ["learned", "sinusoidal"])
def test_vectors_at_the_input_are_those_of_the_drawn_positions(name):
    encoding = build(name)
    seen, places = drawn_for(encoding)
    found = seen.embed(torch.zeros(1, LENGTH, EMBED_DIM, dtype=torch.float64))[0]
    if name == "learned":
        expected = torch.stack([encoding.weight[2 + k] for k in places])
    else:
        rates = [10000 ** (-2 * i / EMBED_DIM) for i in range(EMBED_DIM // 2)]
        angles = torch.tensor([[k * rate for rate in rates] for k in places], dtype=torch.float64)
        expected = torch.stack((angles.sin(), angles.cos()), -1).flatten(1)
    assert_close(found, expected)


def test_rotations_are_those_of_the_drawn_positions():
    encoding = build("rope", rope_values=True)
    seen, places = drawn_for(encoding)
    vectors = [
        normal(1, 2, LENGTH, EMBED_DIM // NUM_HEADS, seed=n, dtype=torch.float64) for n in range(3)
    ]
    for found, given_ in zip(seen.rotate(*vectors), vectors, strict=True):
        for head in range(2):
            rows = [rotate(given_[0, head, t], k, 10000.0) for t, k in enumerate(places)]
            assert_close(found[0, head], torch.stack(rows))


def distance_of(places, i, j):
    """What stands for j − i."""
    return (1 if j > i else -1) * places[abs(j - i)]


@pytest.mark.parametrize("name", ["alibi", "t5"])
def test_biases_are_those_of_the_drawn_distances(name):
    encoding = build(name)
    seen, places = drawn_for(encoding)
    found = seen.attention_bias(LENGTH, LENGTH).dense()
    for h in range(NUM_HEADS):
        for i in range(LENGTH):
            for j in range(LENGTH):
                d = distance_of(places, i, j)
                if name == "alibi":
                    expected = -(2 ** (-8 * (h + 1) / NUM_HEADS)) * abs(d)
                else:
                    expected = encoding.relative_bias.weight[bucket(d, 8, 20), h]
                assert_close(found[h, i, j], torch.as_tensor(expected, dtype=found.dtype))
    assert len(set(places)) == LENGTH


def test_vectors_of_shaw_are_those_of_the_drawn_distances():
    encoding = build("shaw")
    terms = enlarged(encoding.build_layer_terms(), 2).double()
    seen, places = drawn_for(encoding)
    q = normal(1, 1, LENGTH, EMBED_DIM // NUM_HEADS, seed=0, dtype=torch.float64)
    scores, values = layer_scores(terms, q, q, seen), layer_values(terms, q @ q.mT, seen)
    for i in range(LENGTH):
        rows = [min(max(-distance_of(places, i, j), -5), 5) + 5 for j in range(LENGTH)]
        assert_close(scores[0, 0, i], torch.stack([q[0, 0, i].dot(terms.key[r]) for r in rows]))
        parts = [q[0, 0, i].dot(q[0, 0, j]) * terms.value_weight[r] for j, r in enumerate(rows)]
        assert_close(values[0, 0, i], sum(parts))


@every_name
def test_a_forward_pass_is_reproduced_by_its_seed_and_by_checkpointing(name):
    def run(seed, **options):
        torch.manual_seed(0)
        encoding = build(name).float()
        encoder = Encoder(encoding, 2, 16, dropout=0.0, attention_dropout=0.0, **options)
        enlarged(encoder, 3)
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
        PositionEncoding, "for_pass", lambda self, length, device: calls.append(length) or self
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
