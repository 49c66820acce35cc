"""What the programs of examples/study and examples/translation refuse before they write."""

import runpy

import pytest

from examples.study import benchmark
from examples.translation import run as translation
from tupe_fairseq import UsageError

#: What each program needs, and where flags go.
PROGRAMS = {
    "benchmark": (benchmark, "DATA --out OUT {}"),
    "translation": (translation, "DATA --out OUT {}"),
}


@pytest.mark.parametrize(
    ("name", "flags", "message"),
    [
        ("benchmark", "--encodings alibi+x=1", "'alibi.x=1' has 'x=1'; the options of alibi are"),
        ("benchmark", "--encodings t5+num_buckets=x", "has 'num_buckets=x'"),
        ("benchmark", "--encodings tupe_a+tie_cls=1", "has 'tie_cls=1'"),
        ("benchmark", "--encodings tupe", "--position-encoding is 'tupe', but the known ones are"),
        ("benchmark", "--blimp /not/there", "--blimp is '/not/there', but there is no such path"),
        ("translation", "--encodings tupe_x", "'tupe_x'"),
        ("translation", "--seeds one", "--seeds is 'one'"),
        ("translation", "--updates 2", "--updates must be at least 4"),
    ],
)
def test_mistakes(name, flags, message, toy_masked_lm_data, tmp_path):
    program, words = PROGRAMS[name]
    paths = {"DATA": toy_masked_lm_data, "OUT": tmp_path / "out"}
    words = [str(paths.get(word, word)) for word in words.format(flags).split()]
    with pytest.raises(UsageError, match=message) as told:
        program.main(words)
    assert "\n" not in str(told.value)
    assert not (tmp_path / "out").exists()


def test_data_without_a_dictionary(tmp_path):
    with pytest.raises(UsageError, match=r"holds no dict\.txt"):
        benchmark.main([str(tmp_path), "--out", str(tmp_path / "out")])


def test_reports_have_help(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["collect", "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("examples.glue.collect", run_name="__main__")
    assert ended.value.code == 0
    assert "holds results.json" in capsys.readouterr().out
