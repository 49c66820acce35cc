"""Distances and buckets against loops and T5's definition in exact fractions."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference import buckets as reference
from tupe_fairseq import UsageError
from tupe_fairseq.position import Shape
from tupe_fairseq.position.deberta import log_buckets
from tupe_fairseq.position.indices import distances, relative_buckets, toeplitz
from tupe_fairseq.position.t5 import RelativeBias

#: T queries at start, ..., start + T − 1 and S keys; S may be smaller than start + T.
sizes = {"queries": st.integers(1, 9), "keys": st.integers(1, 9), "start": st.integers(0, 9)}
quickly = settings(max_examples=60)


@st.composite
def bucket_arguments(draw):
    """num_buckets, max_distance, bidirectional, such as T5's formula defines."""
    bidirectional = draw(st.booleans())
    side = draw(st.integers(2, 24))
    max_distance = draw(st.integers(side // 2 + 1, 160))
    return (2 * side if bidirectional else side), max_distance, bidirectional


@quickly
@given(bucket_arguments())
def test_buckets_equal_the_definition(arguments):
    """Also beyond the largest distance that has a bucket of its own."""
    distance = torch.cat((torch.arange(-165, 166), torch.tensor([-(10**6), 10**6])))
    expected = [reference.bucket(int(d), *arguments) for d in distance]
    assert relative_buckets(distance, *arguments).tolist() == expected


@quickly
@given(**sizes)
def test_toeplitz_gives_each_distance_to_its_queries_and_keys(queries, keys, start):
    distance = distances(queries, keys, start)
    expected = torch.arange(keys) - torch.arange(start, start + queries)[:, None]
    assert distance.tolist() == sorted(set(expected.flatten().tolist()))
    heads = torch.stack((distance, distance + 100)).double().requires_grad_()
    found = toeplitz(heads, keys)
    assert torch.equal(found, torch.stack((expected, expected + 100)))
    weights = torch.rand(2, queries, keys, dtype=torch.float64)
    (found * weights).sum().backward()
    for column, d in enumerate(distance):
        torch.testing.assert_close(heads.grad[:, column], weights[:, expected == d].sum(1))


@quickly
@given(bucket_arguments())
def test_rows_of_cls_are_reached_by_no_distance(arguments):
    num_buckets, max_distance, bidirectional = arguments
    shape = Shape(8, 2, 16, bidirectional)
    bias = RelativeBias(shape, num_buckets, max_distance, untie_cls=True)
    of_distances = set(relative_buckets(torch.arange(-165, 166), *arguments).tolist())
    of_cls = {bias.from_cls, bias.to_cls}
    assert len(of_cls) == 2
    assert not of_distances & of_cls
    assert of_distances | of_cls <= set(range(len(bias.weight)))


def test_rows_of_cls_in_the_official_release():
    bias = RelativeBias(Shape(8, 2, 16), 32, 128, untie_cls=True)
    assert (bias.from_cls, bias.to_cls, len(bias.weight)) == (16, 32, 33)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((13, 128, True), "--num-buckets must be even, but is 13"),
        ((2, 128, True), "--num-buckets must be at least 4, but is 2"),
        ((0, 128, True), "--num-buckets must be at least 4, but is 0"),
        ((1, 128, False), "--num-buckets must be at least 2, but is 1"),
        ((32, 8, True), "--max-distance must be larger than 8.*, but is 8"),
        ((32, 16, False), "--max-distance must be larger than 16.*, but is 16"),
        ((32, -3, True), "--max-distance must be larger than 8.*, but is -3"),
    ],
)
def test_undefined_buckets_are_refused(arguments, message):
    num_buckets, max_distance, bidirectional = arguments
    with pytest.raises(UsageError, match=message):
        RelativeBias(Shape(8, 2, 16, bidirectional), num_buckets, max_distance)


@pytest.mark.parametrize(
    "arguments", [(4, 2, True), (2, 2, False), (13, 128, False), (32, 9, True)]
)
def test_smallest_defined_buckets_are_accepted(arguments):
    num_buckets, max_distance, bidirectional = arguments
    RelativeBias(Shape(8, 2, 16, bidirectional), num_buckets, max_distance)


def test_buckets_of_deberta_under_another_default_dtype():
    """transformers builds models under that of their parameters."""
    distance = torch.arange(512)
    expected = log_buckets(distance, 256, 512)
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert torch.equal(log_buckets(distance, 256, 512), expected)
    finally:
        torch.set_default_dtype(torch.float32)
