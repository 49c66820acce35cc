"""examples/study/algorithmic.py: its tasks, refusals, and that it goes on where it ended."""

import json

import pytest
import torch

from examples.study import algorithmic
from tupe_fairseq import UsageError


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


def words(out, *more):
    small = ("--updates", "2", "--batch-size", "4", "--longest", "60", "--every", "30")
    return ["--out", str(out), *small, *more]


def test_a_second_call_goes_on(tmp_path, capsys):
    out = tmp_path / "results.jsonl"
    shared = ("--tasks", "reverse_string", "--encodings")
    algorithmic.main(words(out, *shared, "alibi"))
    first = out.read_text()
    algorithmic.main(words(out, *shared, "alibi,rope+rope_theta=500"))
    assert out.read_text().startswith(first)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["encoding"] for line in lines] == ["alibi", "rope+rope_theta=500"]
    assert all(set(line["by_length"]) == {"30", "60"} for line in lines)
    assert all(line["score"] == line["by_length"]["60"] for line in lines)
    assert capsys.readouterr().out.count("reverse_string alibi") == 1


def test_other_tested_lengths_are_another_run(tmp_path):
    """Lines of earlier versions do not say which: they have the default distance."""
    out, runs = tmp_path / "results.jsonl", ("--tasks", "reverse_string", "--encodings", "none")
    algorithmic.main(words(out, *runs, "--every", "20"))
    algorithmic.main(words(out, *runs, "--every", "30"))
    first, second = map(json.loads, out.read_text().splitlines())
    assert [list(line["by_length"]) for line in (first, second)] == [
        ["20", "40", "60"],
        ["30", "60"],
    ]
    del first["every"]
    out.write_text(json.dumps(first) + "\n")
    algorithmic.main(words(out, *runs, "--every", "10"))
    assert out.read_text() == json.dumps(first) + "\n"
    algorithmic.main(words(out, *runs, "--every", "20"))
    assert len(out.read_text().splitlines()) == 2


def test_a_seed_given_twice_is_one_run(tmp_path):
    out = tmp_path / "results.jsonl"
    algorithmic.main(
        words(out, "--tasks", "reverse_string", "--encodings", "none", "--seeds", "2,1,2")
    )
    assert [json.loads(line)["seed"] for line in out.read_text().splitlines()] == [2, 1]


def test_a_seed_gives_the_same_result(tmp_path):
    found = []
    for name in "ab":
        algorithmic.main(
            words(tmp_path / name, "--tasks", "missing_duplicate", "--encodings", "t5")
        )
        line = json.loads((tmp_path / name).read_text())
        assert line.pop("minutes") >= 0
        found.append(line)
    assert found[0] == found[1]


def test_options():
    name, options = algorithmic.options_of("tupe_r+tie_cls=true+num_buckets=8")
    assert (name, options) == ("tupe_r", {"tie_cls": True, "num_buckets": 8})


def test_it_learns():
    """Strings of one symbol are their own reverse."""
    torch.manual_seed(0)
    solver = algorithmic.Solver("none", 4)

    def one_symbol(batch, length):
        return algorithmic.reverse_string(batch, 1)

    algorithmic.train(solver, one_symbol, 30, 16, 1e-3)
    assert algorithmic.accuracy(solver, one_symbol, 1, 100) == 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--tasks", "sort"), "--tasks names 'sort'; the tasks are: reverse_string"),
        (("--encodings", "tupe"), "--position-encoding is 'tupe'"),
        (("--encodings", "alibi+x=1"), "--encodings holds 'x=1'; the options of alibi are"),
        (("--encodings", "t5+num_buckets=x"), "--encodings holds 'num_buckets=x'"),
        (("--encodings", "tupe_a+tie_cls=1"), "--encodings holds 'tie_cls=1'"),
        (("--seeds", "1,x"), "--seeds is '1,x', but must be like 1,2,3"),
        (("--updates", "0"), "--updates, --batch-size and --every must be at least 1"),
        (("--longest", "40"), "--longest must be more than 40, but is 40"),
    ],
)
def test_refusals(tmp_path, flags, message):
    with pytest.raises(UsageError, match=message) as raised:
        algorithmic.main(words(tmp_path / "out", *flags))
    assert "\n" not in str(raised.value)
