"""examples/study/benchmark.py: its runs on toy data, and the report."""

import pytest
import torch

from examples.shared.results import read_results, rows
from examples.study import benchmark, initial
from tests.examples.test_compare_encodings import SMALLER
from tupe_fairseq import UsageError


@pytest.mark.slow
@pytest.mark.usefixtures("forking_python")
def test_baseline(toy_masked_lm_data, tmp_path, forking_python, monkeypatch):
    monkeypatch.setattr("sys.executable", forking_python)
    out = tmp_path / "out"
    only = ["--only", "baseline/learned/base/1", "baseline/learned/init=6/1"]
    shorter = benchmark.PILOT._replace(updates=5, validations=5)
    monkeypatch.setattr(benchmark, "PILOT", shorter)
    benchmark.main([str(toy_masked_lm_data), "--out", str(out), *only, "--", *SMALLER])
    found = {row["setting"]: row for row in rows(read_results(out))}
    assert set(found) == {"base", "init=6"}
    assert found["base"]["losses"] != found["init=6"]["losses"]
    assert "| `learned` | init=6 |" in (out / "report.md").read_text()


def test_initial_weights(toy_masked_lm_data, tmp_path, monkeypatch):
    flags = [*("--user-dir", "tupe_fairseq", "--arch", "tupe_roberta", "--task", "masked_lm")]
    flags = [str(toy_masked_lm_data), *flags, *SMALLER, "--seed", "3", "--cpu"]
    found = {}
    for factor in ("1", "2"):
        file = tmp_path / f"{factor}.pt"
        words = [str(file), f"*q_proj.weight*={factor}", f"*fc1.weight={factor}", "--", *flags]
        monkeypatch.setattr("sys.argv", ["initial", *words])
        initial.main()
        found[factor] = torch.load(file, weights_only=False)["model"]
    for name, weight in found["1"].items():
        expected = 2 * weight if "fc1.weight" in name or "q_proj.weight" in name else weight
        assert torch.equal(found["2"][name], expected), name


def test_a_pattern_without_a_parameter():
    with pytest.raises(UsageError, match=r"no parameter of the model matches '\*pos\*'"):
        initial.multiply(torch.nn.Linear(2, 2), ["*pos*=2"])
