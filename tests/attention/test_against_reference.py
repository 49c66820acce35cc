"""Attention of every encoding and backend against the loops of tests/reference."""

import pytest
import torch

from tests.attention.cases import (
    BACKENDS,
    OTHER_VARIANTS,
    PAPER,
    VARIANTS,
    build,
    gradients,
    run,
    served,
)
from tests.attention.loops import DTYPES, REFERENCES, SENTENCES, expected_of, inputs
from tests.tolerances import assert_close, assert_gradients_close


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("length", "padded"), SENTENCES)
@pytest.mark.parametrize(("backend", "case"), served(BACKENDS, [*PAPER, *VARIANTS]))
def test_output_and_every_gradient_equal_the_loops(backend, case, length, padded, dtype):
    encoding, attention = build(case, 7, dtype)
    x, padding = inputs(length, padded, dtype)
    output, _ = run(encoding, attention, x, padding, backend=backend)
    # Words and parameters are drawn in fp32: float64 holds the same.
    drawn = torch.float32 if dtype == torch.float64 else dtype
    expected = expected_of(case, length, padded, drawn)
    assert_close(output, expected.output, dtype)
    assert_gradients_close(gradients(output, x, encoding, attention), expected.gradients, dtype)


@pytest.mark.parametrize(("length", "padded"), SENTENCES)
@pytest.mark.parametrize("case", [*REFERENCES, *VARIANTS, *OTHER_VARIANTS])
def test_weights_equal_the_loops(case, length, padded):
    encoding, attention = build(case, 7)
    x, padding = inputs(length, padded, torch.float32)
    _, weights = run(encoding, attention, x, padding, need_weights=True)
    assert_close(weights, expected_of(case, length, padded, torch.float32).weights)


def test_reference_attends_sharply():
    """Near-uniform weights would hide mistakes in the scores: the parameters must be large."""
    weights = expected_of("tupe_r", 7, None, torch.float32).weights
    uniform = 1 / weights.size(-1)
    assert weights.max(dim=-1).values.mean() > 3 * uniform
