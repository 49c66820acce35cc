"""examples/study/algorithmic.py: its tasks and results; encodings with options."""

import json

import pytest
import torch

from examples.study import algorithmic, encodings


@pytest.mark.parametrize("length", [1, 2, 7, 40])
def test_reverse_string(length):
    strings, answers = algorithmic.reverse_string(50, length)
    for string, answer in zip(strings.tolist(), answers.tolist(), strict=True):
        assert len(string) == length
        assert answer == list(reversed(string))
        assert set(string) <= {0, 1}


@pytest.mark.parametrize("length", [2, 3, 8, 41])
def test_missing_duplicate(length):
    """What is left out makes both halves the same."""
    strings, answers = algorithmic.missing_duplicate(200, length)
    places = set()
    for string, (answer,) in zip(strings.tolist(), answers.tolist(), strict=True):
        assert len(string) == length
        if length % 2:
            assert string.pop() == algorithmic.FILLER
        place = string.index(algorithmic.LEFT_OUT)
        places.add(place)
        string[place] = answer
        half = len(string) // 2
        assert string[:half] == string[half:]
        assert set(string) <= {0, 1}
    assert len(places) > length / 2


def test_missing_duplicate_of_one_symbol():
    strings, answers = algorithmic.missing_duplicate(3, 1)
    assert torch.equal(strings, answers)


def solve(out, task, encoding, *more):
    small = ("--updates", "2", "--batch-size", "4", "--longest", "60")
    algorithmic.main([task, encoding, str(out), *small, *more])
    return json.loads(out.read_text())


def test_result(tmp_path):
    found = solve(tmp_path / "result.json", "reverse_string", "rope+rope_theta=500")
    assert list(found["by_length"]) == ["10", "20", "30", "40", "50", "60"]
    assert found["score"] == (found["by_length"]["50"] + found["by_length"]["60"]) / 2


def test_a_seed_gives_the_same_result(tmp_path):
    first, second = (solve(tmp_path / name, "missing_duplicate", "t5") for name in "ab")
    assert first.pop("minutes") >= 0 <= second.pop("minutes")
    assert first == second


def test_options():
    name, options = encodings.options_of("tupe_r+tie_cls+num_buckets=8")
    assert (name, options) == ("tupe_r", {"tie_cls": True, "num_buckets": 8})
    assert encodings.flags_of("tupe_r+tie_cls=false+num_buckets=8") == [
        *("--position-encoding", "tupe_r", "--no-tie-cls", "--num-buckets", "8")
    ]


def test_it_learns():
    """Strings of one symbol are their own reverse."""
    torch.manual_seed(0)
    solver = algorithmic.Solver("none", 4)

    def one_symbol(batch, length):
        return algorithmic.reverse_string(batch, 1)

    algorithmic.train(solver, one_symbol, 30, 16)
    assert algorithmic.accuracy(solver, one_symbol, 1, 100) == 1
