"""CAPE and SHAPE in training: what they draw, for whom, and from which generator."""

import math

import pytest
import torch

from tests.attention.cases import normal
from tests.reference import shifted, sinusoidal
from tests.reference.each_word import each_word
from tests.tolerances import assert_close, assert_not_zero
from tupe_fairseq import build_position_encoding

WIDTH = 12
LENGTH = 9
SENTENCES = 400
STILL = {"cape_global_shift": 0.0, "cape_local_shift": 0.0, "cape_scale": 1.0}
POSITIONS = torch.arange(LENGTH)


def build(name, **options):
    return build_position_encoding(name, WIDTH, 3, LENGTH, **options)


def drawn(**options):
    """Positions of many sentences, B×T."""
    torch.manual_seed(0)
    return build("cape", **{**STILL, **options}).augmented(POSITIONS, SENTENCES)


def assert_uniform(values, low, high):
    """Within the bounds, and mean and spread within five standard errors of the uniform's."""
    assert low <= values.min()
    assert values.max() <= high
    unit = (values - low) / (high - low)
    assert abs(unit.mean() - 0.5) < 5 / math.sqrt(12 * unit.numel())
    assert abs(unit.var() - 1 / 12) < 5 * math.sqrt(1 / 180 / unit.numel())


def test_cape_shifts_a_sentence_as_a_whole():
    shift = drawn(cape_global_shift=5.0) - POSITIONS
    assert_close(shift, shift[:, :1].expand_as(shift))
    assert_uniform(shift[:, 0], -5, 5)


def test_cape_shifts_each_word():
    shift = drawn(cape_local_shift=0.5) - POSITIONS
    assert_uniform(shift, -0.5, 0.5)
    together = torch.corrcoef(shift.t()).fill_diagonal_(0)
    assert together.abs().max() < 5 / math.sqrt(SENTENCES)


def test_cape_scales_a_sentence_as_a_whole():
    """With a logarithm that is uniform."""
    scale = drawn(cape_scale=1.5)[:, 1:] / POSITIONS[1:]
    assert_close(scale, scale[:, :1].expand_as(scale))
    assert_uniform(scale[:, 0].log(), -math.log(1.5), math.log(1.5))


def test_cape_scales_what_it_has_shifted():
    """(t + Δ + ε)·λ: neighbours are λ·(1 + ε_{t+1} − ε_t) apart."""
    positions = drawn(cape_global_shift=1e3, cape_scale=2.0)
    scale = positions[:, 1] - positions[:, 0]
    assert_uniform(positions[:, 0] / scale, -1e3, 1e3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_cape_adds_the_sinusoids_of_what_it_has_drawn(dtype):
    encoding = build("cape")
    x = normal(2, LENGTH, WIDTH, seed=1, dtype=dtype)
    torch.manual_seed(5)
    positions = encoding.augmented(POSITIONS, 2)
    torch.manual_seed(5)
    found = encoding.embed(x)
    expected = each_word(
        x.double(), lambda b, k, word: word + sinusoidal.wave(positions[b, k].item(), WIDTH)
    )
    assert found.dtype == dtype
    assert_close(found, expected, dtype)
    assert_not_zero(found - encoding.embed(x))


@pytest.mark.parametrize("start", [0, 2])
def test_shape_shifts_sentences_by_all_numbers_below(start):
    """k ~ U{0, ..., K − 1}, one for each sentence."""
    encoding = build("shape", shape_shifts=4)
    x = torch.zeros(SENTENCES, LENGTH - start, WIDTH, dtype=torch.float64)
    torch.manual_seed(0)
    found = encoding.embed(x, start=start)
    candidates = [
        shifted.embed(x[:1], {}, start=start, draws=[k], shape_shifts=4)[0] for k in range(4)
    ]
    shifts = [
        next(k for k, c in enumerate(candidates) if torch.allclose(sentence, c))
        for sentence in found
    ]
    counts = torch.bincount(torch.tensor(shifts), minlength=4)
    assert (counts - SENTENCES / 4).abs().max() < 5 * math.sqrt(SENTENCES * 3 / 16)


@pytest.mark.parametrize("name", ["cape", "shape"])
def test_training_draws_from_the_seeded_generator(name):
    encoding = build(name)
    x = normal(2, LENGTH, WIDTH, seed=1)
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(encoding.embed(x))
    assert torch.equal(found[0], found[1])
    assert not torch.allclose(found[0], found[2])
    assert not torch.allclose(found[0][0] - x[0], found[0][1] - x[1]), "one draw a sentence"


@pytest.mark.parametrize("name", ["cape", "shape"])
def test_training_draws_on_the_device_of_the_words(name):
    x = torch.zeros(2, LENGTH, WIDTH, device="meta")
    assert build(name).to("meta").embed(x).device == x.device


def test_recursive_positions_differ_at_the_start():
    """Up to the last, or else a long text would begin without positions."""
    path = build_position_encoding("rnn", 64, 4, 512, rnn_recursive=True).path(512)
    assert (path[1:] - path[:-1]).norm(dim=1).min() > 1e-4
    assert path.std() < 0.2
