"""examples/study/measures.py: hand-made curves and scores."""

import numpy as np
import pytest

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


@pytest.mark.parametrize(
    ("values", "standard_error", "written"),
    [
        # Standard deviation 1; t of two degrees of freedom is 4.3027.
        ([1.0, 2.0, 3.0], 0.0, "+2.00 ± 2.48 (noise)"),
        ([1.9, 2.0, 2.1], 0.0, "**+2.00 ± 0.25**"),
        ([-1.9, -2.0, -2.1], 0.0, "**-2.00 ± 0.25**"),
        # The seeds agree, but 1.96 × 2 are as much as the difference.
        ([3.0, 3.0, 3.0], 2.0, "+3.00 ± 3.92 (noise)"),
        # √(0.2484² + 0.196²)
        ([1.9, 2.0, 2.1], 0.1, "**+2.00 ± 0.32**"),
        ([9.0], 0.0, "+9.00 (one seed)"),
    ],
)
def test_difference_is_beyond_the_noise_of_seeds_and_examples(values, standard_error, written):
    found = measures.difference(values, standard_error)
    assert found.written(2) == written
    assert found.is_noise is not written.startswith("**")


@pytest.mark.parametrize("metric", ["accuracy", "mcc", "pearson"])
def test_standard_error_is_that_of_scores_of_random_samples(metric):
    rng, examples, scores = np.random.default_rng(0), 400, []
    for _ in range(800):
        if metric == "pearson":
            label, noise = rng.normal(size=(2, examples))
            answer = 0.5 * label + np.sqrt(0.75) * noise
        else:
            label = rng.integers(0, 2, examples)
            answer = np.where(rng.random(examples) < 0.75, label, 1 - label)
        # Of two classes, Matthews' coefficient is the correlation.
        score = (
            (answer == label).mean() if metric == "accuracy" else np.corrcoef(label, answer)[0, 1]
        )
        scores.append(100 * score)
    found = measures.standard_error(metric, float(np.mean(scores)), examples)
    assert found == pytest.approx(np.std(scores), rel=0.1)


def test_one_answer_to_all():
    train, valid = ["1", "0", "1"], ["0", "0", "0", "1"]
    # The answer is that of the training set, 1: right for one of four.
    assert measures.without_model("accuracy", train, valid) == 25.0
    assert measures.without_model("mcc", train, valid) == 0.0
    assert measures.without_model("pearson", ["1.0"], ["2.5"]) == 0.0
