"""examples/study/measures.py: hand-made curves and scores."""

import pytest

from examples.study import measures


@pytest.mark.parametrize(
    ("curve", "update"),
    [
        ({10: 8.0, 20: 6.0, 30: 5.0, 40: 4.0}, 40),
        # Half way between 5 at 20 and 3 at 30.
        ({10: 7.0, 20: 5.0, 30: 3.0, 40: 2.0}, 25),
        # A quarter of the way from 10 to 20.
        ({10: 4.5, 20: 2.5, 30: 2.4, 40: 2.3}, 12.5),
        # At a validation exactly; what comes later does not count.
        ({10: 7.0, 20: 4.0, 30: 9.0, 40: 3.0}, 20),
        # Before the first validation: no sooner than that is known.
        ({10: 1.0, 20: 1.0, 30: 1.0, 40: 1.0}, 10),
        ({10: 8.0, 20: 7.0, 30: 6.0, 40: 4.001}, None),
        # Flat, then down.
        ({10: 5.0, 20: 5.0, 30: 4.0, 40: 4.0}, 30),
    ],
)
def test_first_update_with_a_loss_of_at_most_4(curve, update):
    found = measures.reaching(curve, 4.0)
    assert found is None if update is None else found == pytest.approx(update)


def test_band_is_over_the_updates_that_all_have():
    curves = [{2: 5.0, 4: 4.0}, {2: 7.0, 4: 3.0, 6: 1.0}]
    assert measures.band(curves) == [(2, 6.0, 5.0, 7.0), (4, 3.5, 3.0, 4.0)]
    assert measures.band([]) == []


@pytest.mark.parametrize(
    ("values", "written"),
    [
        # Standard deviation 1; t of two degrees of freedom is 4.3027.
        ([1.0, 2.0, 3.0], "+2.00 ± 2.48 (noise)"),
        ([1.9, 2.0, 2.1], "**+2.00 ± 0.25**"),
        ([-1.9, -2.0, -2.1], "**-2.00 ± 0.25**"),
        ([9.0], "+9.00 (one seed)"),
    ],
)
def test_difference_is_beyond_the_noise_of_seeds(values, written):
    found = measures.difference(values)
    assert found.written(2) == written
    assert found.is_noise is not written.startswith("**")


def test_one_answer_to_all():
    train = ["1", "0", "1"]
    valid = ["0", "0", "0", "1"]
    # The answer is that of the training set, 1: right for one of four.
    assert measures.without_model("accuracy", train, valid) == 25.0
    assert measures.without_model("mcc", train, valid) == 0.0
    assert measures.without_model("pearson", ["1.0"], ["2.5"]) == 0.0
