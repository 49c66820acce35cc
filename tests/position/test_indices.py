"""Index arithmetic against loops and T5's definition in exact fractions."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference import buckets as reference
from tupe_fairseq import UsageError
from tupe_fairseq.position.indices import (
    check_buckets,
    cls_rows,
    distances,
    relative_buckets,
    toeplitz,
)

#: |j − i| -> bucket, for 32 buckets in both directions and max distance 128, as T5 and TUPE use.
T5_TABLE = {
    **{range(n, n + 1): n for n in range(8)},
    range(8, 12): 8,
    range(12, 16): 9,
    range(16, 23): 10,
    range(23, 32): 11,
    range(32, 46): 12,
    range(46, 64): 13,
    range(64, 91): 14,
    range(91, 600): 15,
}

#: T queries at start, ..., start + T − 1 and S keys; S may be smaller than start + T.
sizes = {"queries": st.integers(1, 9), "keys": st.integers(1, 9), "start": st.integers(0, 9)}
quickly = settings(max_examples=60, deadline=None)


@st.composite
def bucket_arguments(draw):
    """num_buckets, max_distance, bidirectional, such as T5's formula defines."""
    bidirectional = draw(st.booleans())
    side = draw(st.integers(2, 24))
    max_distance = draw(st.integers(side // 2 + 1, 160))
    return (2 * side if bidirectional else side), max_distance, bidirectional


@pytest.mark.parametrize("sign", [-1, 1], ids=["left", "right"])
def test_buckets_of_t5(sign):
    for reach, bucket in T5_TABLE.items():
        found = relative_buckets(sign * torch.tensor(reach), 32, 128)
        right = 16 if sign > 0 and 0 not in reach else 0
        assert (found == bucket + right).all(), reach


def test_reference_buckets_of_t5():
    """The reference itself, on the table of the method."""
    for reach, bucket in T5_TABLE.items():
        assert {reference.bucket(-n, 32, 128) for n in reach} == {bucket}


@quickly
@given(bucket_arguments())
def test_buckets_equal_the_definition(arguments):
    check_buckets(*arguments)
    found = torch.arange(-165, 166)
    expected = [reference.bucket(int(distance), *arguments) for distance in found]
    assert relative_buckets(found, *arguments).tolist() == expected


@quickly
@given(bucket_arguments())
def test_last_bucket_begins_at_the_latest_at_max_distance(arguments):
    num_buckets, max_distance, bidirectional = arguments
    far = torch.tensor([max_distance, max_distance + 1, 10**6])
    last = num_buckets // 2 - 1 if bidirectional else num_buckets - 1
    assert relative_buckets(-far, *arguments).tolist() == [last] * 3
    right = num_buckets - 1 if bidirectional else 0
    assert relative_buckets(far, *arguments).tolist() == [right] * 3


@quickly
@given(**sizes)
def test_distances_are_those_of_the_cells(queries, keys, start):
    cells = {j - i for i in range(start, start + queries) for j in range(keys)}
    assert distances(queries, keys, start).tolist() == sorted(cells)


@quickly
@given(**sizes)
def test_toeplitz_puts_each_distance_in_its_cells(queries, keys, start):
    offsets = distances(queries, keys, start)
    heads = torch.stack((offsets, offsets + 100))
    spread = toeplitz(heads, keys)
    assert spread.shape == (2, queries, keys)
    for i in range(queries):
        for j in range(keys):
            distance = j - (i + start)
            assert spread[:, i, j].tolist() == [distance, distance + 100]


def test_cls_rows_of_the_official_release():
    assert cls_rows(32, bidirectional=True) == (16, 32, 33)


@quickly
@given(bucket_arguments())
def test_cls_rows_are_reached_by_no_distance(arguments):
    num_buckets, _, bidirectional = arguments
    from_cls, to_cls, rows = cls_rows(num_buckets, bidirectional)
    reached = set(relative_buckets(torch.arange(-165, 166), *arguments).tolist())
    assert from_cls != to_cls
    assert not reached & {from_cls, to_cls}
    assert reached | {from_cls, to_cls} <= set(range(rows))
    assert rows == num_buckets + (1 if bidirectional else 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((13, 128, True), "--num-buckets must be even, but is 13"),
        ((2, 128, True), "--num-buckets must be at least 4, but is 2"),
        ((0, 128, True), "--num-buckets must be at least 4, but is 0"),
        ((1, 128, False), "--num-buckets must be at least 2, but is 1"),
        ((32, 8, True), "--max-distance must be larger than 8.*, but is 8"),
        ((32, 16, False), "--max-distance must be larger than 16.*, but is 16"),
    ],
)
def test_undefined_buckets_are_refused(arguments, message):
    with pytest.raises(UsageError, match=message):
        check_buckets(*arguments)


def test_smallest_defined_buckets_are_accepted():
    check_buckets(4, 2, bidirectional=True)
    check_buckets(2, 2, bidirectional=False)
    check_buckets(13, 128, bidirectional=False)
    check_buckets(32, 9, bidirectional=True)
