"""examples/study/benchmark.py: its runs on toy data, and the report."""

import json
import math

import pytest

from examples.shared.results import read_results, rows
from examples.shared.runner import runner
from examples.study import benchmark, benchmark_report
from examples.study.benchmark_plan import Size
from examples.study.benchmark_results import times
from examples.study.training import Recipe
from tests import toy_data
from tests.examples.test_blimp import LINES
from tests.examples.test_training_runs import SMALLER


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


@pytest.mark.slow
@pytest.mark.usefixtures("forking_python")
def test_runs_at_full_length(tmp_path, forking_python, monkeypatch):
    """A model is trained, and measured on longer texts and on BLiMP."""
    monkeypatch.setattr("sys.executable", forking_python)
    monkeypatch.setattr(benchmark, "BLOCKS", 1)
    data, blimp = tmp_path / "data", tmp_path / "blimp.jsonl"
    data.mkdir()
    lines, symbols = toy_data.write_pieces(data, LINES * 20)
    for split in ("train", "valid"):
        toy_data.write_split(data, split, lines, symbols)
    sentences = {"sentence_good": "the cat sat", "sentence_bad": "sat cat the"}
    blimp.write_text(json.dumps({"UID": "one", "linguistics_term": "binding", **sentences}))
    flags = (*SMALLER, "--warmup-updates", "1")
    recipe = Recipe("tupe_roberta", 4, 2, 24, 4, 1e-3, flags)
    size = Size("toy", recipe, recipe, ("tupe_r",), (1, 2))
    out = tmp_path / "out"
    args = benchmark.parse([str(data), "--out", str(out), "--blimp", str(blimp)])
    with runner(args, {}, lambda _: None) as execute:
        execute(benchmark.final_runs(args, size, {"tupe_r": 2e-3}))
        monkeypatch.setattr(benchmark, "ROUNDS", 1)
        monkeypatch.setattr(benchmark, "TIMED", 40)
        execute(benchmark.time_runs(args, size, {"learned": 2e-3, "tupe_r": 2e-3}))
    assert times(read_results(out), "toy").keys() == {"learned", "tupe_r"}
    found = rows(read_results(out), part="final, toy")
    assert [row["seed"] for row in found] == [1, 2]
    for row in found:
        assert (row["lr"], row["tokens"], [*row["losses"]]) == (2e-3, 96, ["2", "4"])
        assert row["blimp"]["pairs"] == 1
        assert row["longer"]["toeplitz"]["mean"].keys() == {"1", "2", "4", "8", "16"}


#: Final losses of three seeds.
LOSSES = {
    "none": (8.0, 8.1, 8.05),
    "learned": (6.5, 6.6, 6.55),
    "learned+from_sinusoids": (6.45, 6.55, 6.5),
    "sinusoidal": (6.4, 6.5, 6.42),
    "t5": (5.5, 5.52, 5.54),
    "alibi": (5.9, 5.8, 5.85),
    "rope": (5.41, 5.43, 5.42),
    "deberta": (5.3, 5.32, 5.31),
    "tupe_a": (5.45, 5.44, 5.46),
    "tupe_r": (5.42, 5.43, 5.44),
}


#: As between two runs: `tupe_r` and `rope` have one seed.
LARGER = {"learned": (6.0, 6.1), "rope": (5.0, 5.01), "deberta": (5.15, 5.15), "tupe_r": (4.0,)}
MODERN = {"learned": (6.2, 6.3), "tupe_r": (5.3, 5.35), "rope": (5.1,)}


def results(**sizes):
    """As results.json has them after all runs."""
    runs = {}
    for size, name in [(group, each) for group in sizes for each in sizes[group]]:
        for seed, loss in enumerate(sizes[size][name], 1):
            accuracy = 90 - 4 * loss
            row = {
                "parameters": 1000,
                "tokens": 2048,
                "seconds": 0.1,
                "losses": {"10": 9.0, "50": 7.0, "100": loss},
                "longer": {way: {"mean": MEANS[name, way]} for way in ("", "toeplitz")},
                "blimp": {"mean": accuracy, "phenomena": {"binding": accuracy, "ellipsis": 55.0}},
            }
            own_settings = {"part": f"final, {size}", "encoding": name, "seed": seed, "lr": 1e-3}
            runs[f"{size}/{name}/{seed}"] = {"settings": own_settings, "result": row}
    for rate, loss in ((1e-3, 5.2), (2e-3, 5.1), (4e-3, math.nan)):
        for name in LOSSES:
            own_settings = {"part": "rates, small", "encoding": name, "seed": 1, "lr": rate}
            row = {"losses": {"100": loss}}
            runs[f"{name}/{rate}"] = {"settings": own_settings, "result": row}
    for seed, seconds in enumerate((0.1, 0.2), 1):
        for name in LOSSES:
            own_settings = {"part": "time, small", "encoding": name, "seed": seed}
            row = {"seconds": seconds * (1 + (name == "tupe_r") * seed / 10)}
            runs[f"time/{name}/{seed}"] = {"settings": own_settings, "result": row}
    return {
        "command": "python -m x",
        "plan": {"context_free": {"128": 8.6}, **sizes},
        "runs": runs,
    }


MEANS = {
    (name, way): {str(k): 5.0 + (0.0 if way else 0.1 * k) for k in (1, 2, 4, 8, 16)}
    for name in LOSSES
    for way in ("", "toeplitz")
}


def test_report(tmp_path, monkeypatch):
    recipe = benchmark.TRIALS["baseline"].recipe
    sizes = [Size(name, recipe, recipe, (), ()) for name in ("small", "large", "modern")]
    monkeypatch.setattr(benchmark_report, "SIZES", {"cpu": sizes})
    found = results(small=LOSSES, large=LARGER, modern=MODERN)
    (tmp_path / "results.json").write_text(json.dumps(found))
    benchmark_report.report(tmp_path)
    lines = (tmp_path / "report.md").read_text().splitlines()
    assert (tmp_path / "layers.png").stat().st_size
    heads = [line for line in lines if line.startswith("| encoding | time")]
    assert ["loss, ModernBERT's layers" in head for head in heads] == [True, False, False]
    assert any(
        line.startswith("| `learned` |") and "| 0 | 6.25 ± 0.64 |" in line for line in lines
    )
    # The floor is 8.05 bits; learned is at 7.75 bits after 35 of 100 updates.
    assert "| `learned` | 1,000 | 0.001 | 6.500 | 6.600 | 6.550 | 35%, 35%, 35% |" in lines
    assert "| `learned` | 1,000 | 0.001 | 6.000 | 6.100 |" in lines
    start = "| `tupe_r` | 1.15 (1.10 to 1.20) | 5.43 ± 0.02 | -1.12"
    (row,) = (line for line in lines if line.startswith(start))
    assert row.endswith("| 68.3 ± 0.1 | +1.50 ± 0.00; toeplitz: +0.00 ± 0.00 |")
    for name in ("losses", "final", "blimp", "rates"):
        assert (tmp_path / f"{name}_small.png").stat().st_size
    assert "| `tupe_r` | 5.200 | **5.100** | nan |" in lines
