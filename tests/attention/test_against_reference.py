"""Attention of every encoding and backend against the loops of tests/reference."""

import functools
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from tests.attention.cases import (
    BACKENDS,
    EMBED_DIM,
    ENCODINGS,
    NUM_HEADS,
    PAPER,
    VARIANTS,
    build,
    gradients,
    normal,
    padding_mask,
    run,
    served,
)
from tests.reference import learned, none, t5, tupe
from tests.tolerances import assert_close, assert_gradients_close

REFERENCES = {
    "none": none.attend,
    "learned": learned.attend,
    "t5": t5.attend,
    "tupe_a": tupe.attend,
    "tupe_r": tupe.attend,
}
DTYPES = (torch.float64, torch.float32, torch.bfloat16)
#: Length, and padding at the end of each of two sentences.
SENTENCES = ((1, None), (2, None), (2, (0, 1)), (7, None), (7, (3, 0)))


class Expected(NamedTuple):
    output: Tensor
    weights: Tensor
    gradients: dict[str, Tensor]


def inputs(length, padded, dtype):
    x = normal(2, length, EMBED_DIM, seed=length, dtype=dtype).requires_grad_()
    return x, None if padded is None else padding_mask(length, *padded)


@functools.cache
def expected_of(case, length, padded, dtype):
    """The reference in float64, at the parameters and words that dtype holds."""
    encoding, attention = (module.double() for module in build(case, 7, dtype))
    name, options = ENCODINGS[case]
    x, padding = inputs(length, padded, dtype)
    x = x.detach().double().requires_grad_()
    output, weights = REFERENCES[name](
        x,
        dict(attention.named_parameters()),
        dict(encoding.named_parameters()),
        NUM_HEADS,
        padding,
        **options,
    )
    return Expected(output.detach(), weights, gradients(output, x, encoding, attention))


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
@pytest.mark.parametrize("case", [*PAPER, *VARIANTS])
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
