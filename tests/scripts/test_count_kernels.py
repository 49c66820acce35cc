"""Kernels of a training step, counted without a GPU."""

import re

import pytest

from tupe_fairseq import UsageError

FLAGS = "--layers 2 --batch 4 --length 32 --width 32 --heads 4 --ffn 64"


@pytest.fixture
def counted(script, capsys):
    """Encoding, backend, kernels and lines of each row."""

    def run(flags):
        assert script("count_kernels").main(f"{FLAGS} {flags}".split()) == 0
        return capsys.readouterr().out.splitlines()

    return run


def kernels(lines):
    """Of each row: the sum, forward, backward."""
    numbers = r" +(\d+) +(\d+) +(\d+) +\d+ +[\d.]+"
    rows = (re.fullmatch(rf"(\w+) +(\w+){numbers}", line) for line in lines)
    return {row[1]: tuple(map(int, row.group(3, 4, 5))) for row in rows if row}


def test_a_row_for_each_encoding(counted):
    lines = counted("--encodings learned,tupe_r,rope --backends sdpa")
    assert "4×32 tokens" in lines[0]
    found = kernels(lines)
    assert list(found) == ["learned", "tupe_r", "rope"]
    for total, forward, backward in found.values():
        assert total == forward + backward
        assert backward > forward > 0
    assert found["learned"] < found["rope"]


def test_what_a_layer_costs(counted):
    """At most so many kernels, of a layer of BERT: 37 without a bias, 6 more to rotate."""
    more = {"learned": 37, "rope": 43}
    two, four = (
        kernels(counted(f"--encodings learned,rope --backends sdpa --layers {layers}"))
        for layers in (2, 4)
    )
    assert {name: (four[name][0] - two[name][0]) / 2 for name in two} == more


def test_lines_of_code(counted):
    """The operators of a row by line, the most frequent first."""
    lines = counted("--encodings none --backends sdpa --lines 100")
    found = [re.match(r" +(\d+) +[\d.]+ GB +(\w+) +(\w+) +(.*)", line) for line in lines]
    found = [each.groups() for each in found if each]
    counts = [int(count) for count, *_ in found]
    assert counts == sorted(counts, reverse=True)
    products = [(int(count), line) for count, _, name, line in found if name == "addmm"]
    assert all(line.startswith("kernels/linear.py:") for _, line in products)
    # In each layer: queries, keys and values; the output; two of the feed-forward block
    assert sum(count for count, _ in products) == 2 * 4


def test_padding_is_read_as_on_a_gpu(counted):
    assert kernels(counted("--encodings none --backends sdpa --padding 0.4"))


def test_what_cannot_be_counted(counted):
    with pytest.raises(UsageError, match="'fire', which reads"):
        counted("--encodings fire")
    with pytest.raises(UsageError, match="--backends names 'x'"):
        counted("--backends x")
