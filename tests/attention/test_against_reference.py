"""Attention of every encoding and backend against the loops of tests/reference.

Encodings that enter the input: tests/position/test_input_encodings.py.
"""

import pytest
import torch

from tests.attention.cases import (
    BACKENDS,
    ENCODINGS,
    OTHER_VARIANTS,
    VARIANTS,
    build,
    gradients,
    run,
    run_with_weights,
    served,
)
from tests.attention.loops import DTYPES, REFERENCES, SENTENCES, expected_of, inputs
from tests.covering import covering
from tests.tolerances import assert_close, assert_gradients_close
from tupe_fairseq import UsageError

CASES = [*REFERENCES, *VARIANTS, *OTHER_VARIANTS]
SERVED = served(BACKENDS, CASES)
#: These have no parameter that tells a model of float64: their biases are fp32 in every model.
PRECISION = {(name, torch.float64): torch.float32 for name in ("alibi", "sandwich")}


@pytest.mark.parametrize(
    ("pair", "sentence", "dtype"), covering(SERVED, SENTENCES, DTYPES), ids=str
)
def test_output_and_every_gradient_equal_the_loops(pair, sentence, dtype):
    """And for `eager` the attention weights."""
    backend, case = pair
    length, padded = sentence
    encoding, attention = build(case, 7, dtype)
    x, padding = inputs(length, padded, dtype)
    # Words and parameters are drawn in fp32: float64 holds the same.
    drawn = torch.float32 if dtype == torch.float64 else dtype
    expected = expected_of(case, length, padded, drawn)
    held = PRECISION.get((ENCODINGS[case][0], dtype), dtype)
    if backend == "eager":
        output, weights = run_with_weights(encoding, attention, x, padding)
        assert_close(weights, expected.weights, held)
    else:
        output = run(encoding, attention, x, padding, backend=backend)
    assert_close(output, expected.output, held)
    assert_gradients_close(gradients(output, x, encoding, attention), expected.gradients, held)


def test_reference_attends_sharply():
    """Near-uniform weights would hide mistakes in the scores: the parameters must be large."""
    weights = expected_of("tupe_r", 7, None, torch.float32).weights
    uniform = 1 / weights.size(-1)
    assert weights.max(dim=-1).values.mean() > 3 * uniform


@pytest.mark.parametrize(
    ("backend", "case", "reason"),
    [
        ("sdpa", "shaw", "it cannot add vectors by distance to the values"),
        ("flash", "deberta", "it cannot add products with vectors by distance"),
        ("flash", "tupe_r", "it cannot add a bias that depends on the distance"),
    ],
)
def test_refusals(backend, case, reason):
    encoding, attention = build(case, 7)
    x, _ = inputs(7, None, torch.float32)
    told = f"--attention-backend is {backend!r}, but {reason}.*; use auto or eager"
    with pytest.raises(UsageError, match=told):
        run(encoding, attention, x, backend=backend)


@pytest.mark.parametrize("backend", ["blocked", "eager"])
def test_all_encodings_are_served(backend):
    assert len(served([backend], ENCODINGS)) == len(ENCODINGS)
