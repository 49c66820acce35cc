"""examples/study/benchmark.py: one of its trials on toy data, with its report."""

import shutil

import pytest

from examples.shared.results import read_results, rows
from examples.study import benchmark, benchmark_overview, encodings
from tests import ROOT

#: After --; the last of two equal flags counts.
SMALLER = (
    *("--encoder-layers", "1", "--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "16"),
    *("--encoder-attention-heads", "2", "--distributed-world-size", "1"),
)


@pytest.mark.slow
@pytest.mark.usefixtures("forking_python")
def test_baseline(toy_masked_lm_data, tmp_path, forking_python, monkeypatch):
    monkeypatch.setattr("sys.executable", forking_python)
    out = tmp_path / "out"
    only = ["--only", "baseline/learned/base/1", "baseline/learned/lr=4e-3/1"]
    trial = benchmark.TRIALS["baseline"]
    shorter = trial.recipe._replace(updates=5, validations=5)
    monkeypatch.setitem(benchmark.TRIALS, "baseline", trial._replace(recipe=shorter))
    benchmark.main([str(toy_masked_lm_data), "--out", str(out), *only, "--", *SMALLER])
    found = {row["setting"]: row for row in rows(read_results(out))}
    assert set(found) == {"base", "lr=4e-3"}
    assert found["base"]["losses"] != found["lr=4e-3"]["losses"]
    assert "| `learned` | `lr=4e-3` |" in (out / "report.md").read_text()


def test_options_of_encodings():
    name, options = encodings.options_of("tupe_r+tie_cls+num_buckets=8")
    assert (name, options) == ("tupe_r", {"tie_cls": True, "num_buckets": 8})
    assert encodings.flags_of("tupe_r+tie_cls=false+num_buckets=8") == [
        *("--position-encoding", "tupe_r", "--no-tie-cls", "--num-buckets", "8")
    ]


def test_overview(tmp_path, monkeypatch):
    shutil.copy(ROOT / "examples" / "study" / "benchmark" / "results.json", tmp_path)
    monkeypatch.setattr("sys.argv", ["benchmark_overview", str(tmp_path)])
    benchmark_overview.main()
    assert b"benchmark_overview" in (tmp_path / "overview.png").read_bytes()
