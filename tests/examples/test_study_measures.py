"""examples/study/measures.py: hand-made curves and scores."""

import math

import numpy as np
import pytest
from sklearn.metrics import matthews_corrcoef

from examples.study import measures

#: The baseline ends with 4 after 40 updates.
BASELINE = {10: 8.0, 20: 6.0, 30: 5.0, 40: 4.0}


@pytest.mark.parametrize(
    ("curve", "share"),
    [
        (BASELINE, 1.0),
        # Half way between 5 at 20 and 3 at 30: 25 of 40.
        ({10: 7.0, 20: 5.0, 30: 3.0, 40: 2.0}, 25 / 40),
        # A quarter of the way from 10 to 20.
        ({10: 4.5, 20: 2.5, 30: 2.4, 40: 2.3}, 12.5 / 40),
        # At a validation exactly; what comes later does not count.
        ({10: 7.0, 20: 4.0, 30: 9.0, 40: 3.0}, 20 / 40),
        # Before the first validation: no sooner than that is known.
        ({10: 1.0, 20: 1.0, 30: 1.0, 40: 1.0}, 10 / 40),
        ({10: 8.0, 20: 7.0, 30: 6.0, 40: 4.001}, None),
        # Flat, then down.
        ({10: 5.0, 20: 5.0, 30: 4.0, 40: 4.0}, 30 / 40),
    ],
)
def test_fraction_of_updates(curve, share):
    found = measures.fraction(curve, BASELINE)
    assert found is None if share is None else found == pytest.approx(share)


def test_band_is_over_the_updates_that_all_have():
    curves = [{2: 5.0, 4: 4.0}, {2: 7.0, 4: 3.0, 6: 1.0}]
    assert measures.band(curves) == [(2, 6.0, 5.0, 7.0), (4, 3.5, 3.0, 4.0)]
    assert measures.band([]) == []


def test_difference_over_seeds_is_students():
    # Mean 2, standard deviation 1; t of two degrees of freedom is 4.3027.
    found = measures.difference([1.0, 2.0, 3.0])
    assert found.mean == 2
    assert found.half_width == pytest.approx(4.3027 / math.sqrt(3), abs=1e-3)
    assert found.is_noise
    assert found.written(1) == "+2.0 ± 2.5 (noise)"
    surer = measures.difference([1.9, 2.0, 2.1])
    assert not surer.is_noise
    assert surer.written(2) == "**+2.00 ± 0.25**"
    assert measures.difference([-1.9, -2.0, -2.1]).written(2) == "**-2.00 ± 0.25**"


def test_examples_are_a_noise_of_their_own():
    # The seeds agree, but 1.96 × 2 are as much as the difference.
    found = measures.difference([3.0, 3.0, 3.0], standard_error=2.0)
    assert found.half_width == pytest.approx(3.92, abs=1e-3)
    assert found.is_noise
    both = measures.difference([1.9, 2.0, 2.1], standard_error=0.1)
    assert both.half_width == pytest.approx(math.hypot(0.2484, 0.196), abs=1e-3)


def test_one_seed_shows_no_noise():
    found = measures.difference([9.0], 0.0)
    assert found.is_noise
    assert found.written(2) == "+9.00 (one seed)"


@pytest.mark.parametrize("metric", ["accuracy", "mcc", "pearson"])
def test_standard_error_is_that_of_scores_of_random_samples(metric):
    rng = np.random.default_rng(0)
    examples, scores = 400, []
    for _ in range(800):
        if metric == "pearson":
            x, noise = rng.normal(size=(2, examples))
            scores.append(100 * np.corrcoef(x, 0.5 * x + np.sqrt(0.75) * noise)[0, 1])
            continue
        label = rng.integers(0, 2, examples)
        answer = np.where(rng.random(examples) < 0.75, label, 1 - label)
        right = (answer == label).mean()
        scores.append(100 * (right if metric == "accuracy" else matthews_corrcoef(label, answer)))
    found = measures.standard_error(metric, float(np.mean(scores)), examples)
    assert found == pytest.approx(np.std(scores), rel=0.1)


def test_one_answer_to_all():
    train, valid = ["1", "0", "1"], ["0", "0", "0", "1"]
    # The answer is that of the training set, 1: right for one of four.
    assert measures.without_model("accuracy", train, valid) == 25.0
    assert measures.without_model("mcc", train, valid) == 0.0
    assert measures.without_model("pearson", ["1.0"], ["2.5"]) == 0.0
