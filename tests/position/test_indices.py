"""T5's buckets against its definition in exact fractions, and which numbers it is defined for."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference import buckets as reference
from tests.reference.tupe import rows_of_cls
from tupe_fairseq import UsageError, build_position_encoding


@st.composite
def bucket_arguments(draw):
    """num_buckets, max_distance, bidirectional, such as T5's formula defines."""
    bidirectional = draw(st.booleans())
    side = draw(st.integers(2, 24))
    max_distance = draw(st.integers(side // 2 + 1, 160))
    return (2 * side if bidirectional else side), max_distance, bidirectional


def build(num_buckets, max_distance, bidirectional):
    options = {"num_buckets": num_buckets, "max_distance": max_distance}
    return build_position_encoding("t5", 8, 2, 400, bidirectional, **options)


@settings(max_examples=60)
@given(bucket_arguments())
def test_buckets_equal_the_definition(arguments):
    """Also beyond the largest distance that has a bucket of its own; none is a row of [CLS]."""
    encoding = build(*arguments)
    table = encoding.relative_bias.weight
    with torch.no_grad():
        table.copy_(torch.arange(len(table))[:, None].expand_as(table))
        score = encoding.attention_bias(1, 400, 200).dense()[0, 0]
    expected = [reference.bucket(d, *arguments) for d in range(-200, 200)]
    assert score.tolist() == expected
    assert not {*expected} & {*rows_of_cls(arguments[0], arguments[2])}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((13, 128, True), "--num-buckets must be even, but is 13"),
        ((2, 128, True), "--num-buckets must be at least 4, but is 2"),
        ((1, 128, False), "--num-buckets must be at least 2, but is 1"),
        ((32, 8, True), "--max-distance must be larger than 8.*, but is 8"),
        ((32, 16, False), "--max-distance must be larger than 16.*, but is 16"),
        ((32, -3, True), "--max-distance must be larger than 8.*, but is -3"),
    ],
)
def test_undefined_buckets_are_refused(arguments, message):
    with pytest.raises(UsageError, match=message):
        build(*arguments)


@pytest.mark.parametrize(
    "arguments", [(4, 2, True), (2, 2, False), (13, 128, False), (32, 9, True)]
)
def test_smallest_defined_buckets_are_accepted(arguments):
    build(*arguments)
