"""scripts/gpu_check.sh on a CPU: what it runs, keeps, continues and reports."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from examples.gpu import check, goals, machine, plan, report, running, tests_log
from tests import processes
from tests.scripts import ROOT
from tupe_fairseq import UsageError

ABOUT = {"device": "some GPU", "commit": "abc", "sources": "123"}
#: A test file for the plugin: one passes, one fails, one ends the process.
TESTS = """
import os, pytest
pytestmark = pytest.mark.gpu
def test_a(): pass
def test_b(): raise ValueError("wrong")
def test_c(): os._exit(3)
def test_d(): pass
"""


def row(code, part="training", name="a row", **more):
    return plan.Row(part, name, ("-c", code), **more)


@pytest.fixture
def place(tmp_path):
    with (tmp_path / ".lock").open("w") as lock:
        yield running.Place(tmp_path, time.monotonic() + 100, lock.fileno())


CLOCK = 'print(\'x | clock | {"updates": 5, "seconds": 2}\')'


def test_plans_have_the_same_rows_on_gpus_and_cpus(tmp_path):
    text = [tmp_path / "text"]
    real, tiny = (plan.rows(size, tmp_path, text, None) for size in ("gpu", "tiny"))
    assert {r.part for r in real} == set(plan.PARTS)
    names = [
        [(r.part, r.name) for r in each if r.part not in ("memory", "study")]
        for each in (real, tiny)
    ]
    assert names[0] == names[1]
    assert len(set(names[0])) == len(names[0])
    assert all((ROOT / file).exists() for file in plan.TESTS)
    # Every goal reads a row that is run.
    benchmarks = {r.name for r in real if r.part == "benchmarks"}
    assert {table for _, table, _, _ in goals.TIMES} | {"32x512, half padding"} <= benchmarks
    assert not any(r.part == "study" for r in plan.rows("gpu", tmp_path, [], None))


def test_rows_are_timed_and_fail_in_one_line(place):
    found = running.run(row(CLOCK, kind="clock", words=100), place)
    assert found == {"words_per_second": 250}
    with pytest.raises(UsageError, match=r"status 1: ValueError: wrong \(log: training_a_row.txt"):
        running.run(row("raise ValueError('wrong')", kind="clock"), place)
    with pytest.raises(UsageError, match=r"did not end within 0\.2 seconds"):
        running.run(row("import time; time.sleep(60)", kind="clock", limit=0.2), place)
    place.deadline = time.monotonic() + 0.2
    with pytest.raises(running.TimeIsUp):
        running.run(row("import time; time.sleep(60)", kind="clock"), place)


def test_results_count_for_one_state_of_the_source(tmp_path):
    results, one = check.Results(tmp_path, ABOUT), row(CLOCK)
    assert not results.is_done(one, again=False)
    results.add(one, 1.0, words_per_second=2)
    again = check.Results(tmp_path, {**ABOUT, "commit": "def"})
    assert again.is_done(one, again=True)
    assert not check.Results(tmp_path, {**ABOUT, "sources": "456"}).is_done(one, again=False)
    again.add(one, 1.0, error="wrong")
    assert again.is_done(one, again=False)
    assert not again.is_done(one, again=True)


def test_tests_go_on_after_one_that_ends_the_process(place, tmp_path):
    file = tmp_path / "test_some.py"
    file.write_text(TESTS)
    tests = plan.Row("tests", "pytest", (file, "-c", ROOT / ".pytest.ini"), "tests")
    assert running.run(tests, place) == {}
    log = tmp_path / "tests.jsonl"
    found = {
        k.rpartition("::")[2]: (e["outcome"], e["message"])
        for k, e in tests_log.outcomes(log).items()
    }
    assert found == {
        "test_a": ("passed", ""),
        "test_b": ("failed", "ValueError: wrong"),
        "test_c": ("failed", "the process ended with status 3"),
        "test_d": ("passed", ""),
    }
    assert report.counted(tmp_path) == {"passed": 2, "failed": 2, "skipped": 0, "left": 0}
    # A line that a kill has cut off is ignored, and nothing is written into it.
    with log.open("a") as out:
        out.write('\n{"test": "cut')
    tests_log.write(log, test="e", outcome="passed")
    assert tests_log.outcomes(log)["e"]["outcome"] == "passed"


def table(name, **seconds):
    rows = [
        {
            "name": encoding,
            "backend": backend,
            "median_seconds": value,
            "quartiles_of_ratios": {"stock": [value] * 3, "learned": [value] * 3},
            "peak_bytes": 1 << 30,
        }
        for key, value in seconds.items()
        for encoding, backend in [key.split("__")]
    ]
    return {
        "about": ABOUT,
        "command": "python x",
        "wall_seconds": 1,
        "tables": [{"facts": name, "rows": rows}],
    }


def test_goals_are_met_missed_or_not_run(tmp_path):
    parts = {part: {} for part in plan.PARTS}
    parts["benchmarks"]["32x512"] = table(
        "F", learned__flash=1, tupe_a__flash=0.8, tupe_r__sdpa=0.95, tupe_r__eager=0.9
    )
    counts = {"passed": 5, "failed": 0, "skipped": 1, "left": 0}
    judged = [verdict for *_, verdict in goals.judged(parts, counts, is_gpu=True)]
    assert judged == ["met", "met", "**missed**", "met", "met", *["not run"] * 4]
    assert {v for *_, v in goals.judged(parts, counts, is_gpu=False)} == {"not judged"}
    for counts, verdict in (({"failed": 1, "left": 3}, "**missed**"), ({"left": 3}, "not run")):
        counts = {"passed": 5, "failed": 0, "skipped": 0} | counts
        assert goals.judged(parts, counts, is_gpu=True)[0][2] == verdict
    assert goals.slower_than_best(parts) == [
        ("32x512", "tupe_r", "sdpa, 950.0 ms", "eager, 900.0 ms")
    ]
    assert goals.never_best(parts) == ["sdpa"]


def test_report_says_what_was_not_run(tmp_path):
    parts = {part: {} for part in plan.PARTS}
    parts["benchmarks"]["32x512"] = {
        **table("F", learned__flash=1),
        "about": {**ABOUT, "sources": "old"},
    }
    parts["training"]["learned (1)"] = {
        "about": ABOUT,
        "wall_seconds": 1,
        "error": "out of memory",
    }
    report.write_report(tmp_path, "gpu", plan.rows("gpu", tmp_path, [], None), parts, ABOUT)
    text = (tmp_path / "report.md").read_text()
    for told in (
        "- benchmarks, 32x512: of an earlier state (sources old)",
        "- training, learned (1): **failed**: out of memory",
        "- memory: not run: 1x512; 1x1024",
        "- study: not run; it needs `--text`",
        "| benchmarks | training steps and attention alone | 1 of 12 |",
        "| learned | flash | 1000.00 | 1.00 (1.00-1.00) |",
    ):
        assert told in text, told


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--parts", "tests,all"], "--parts names 'all'"),
        (["--until", "0"], "--until is 0"),
        (["--text", "/nowhere"], "'/nowhere', which does not exist"),
    ],
)
def test_mistakes_are_told(flags, told):
    with pytest.raises(UsageError, match=told):
        check.parse(flags)


@pytest.mark.slow
def test_a_killed_call_loses_no_row(forking_python, tmp_path):
    """SIGTERM in the second row; the next call runs the others."""
    words = [
        "bash",
        ROOT / "scripts/gpu_check.sh",
        "--no-install",
        "--parts",
        "memory",
        "--out",
        tmp_path,
    ]
    environment = {**os.environ, "PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""}
    del environment[processes.PYTHON]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    for line in process.stdout:
        if line.startswith("memory: 1x32 ..."):
            break
    process.send_signal(signal.SIGTERM)
    rest, status = process.stdout.read(), process.wait()
    assert status == 1
    assert "run the same command again" in rest
    kept = json.loads((tmp_path / "memory.json").read_text())
    assert list(kept) == ["1x32"]
    environment["PYTHON"] = environment[processes.PYTHON] = forking_python
    again = subprocess.run(words, capture_output=True, text=True, env=environment, check=True)
    assert "1x32" not in again.stdout
    after = json.loads((tmp_path / "memory.json").read_text())
    assert list(after) == ["1x32", "1x64"]
    assert after["1x32"] == kept["1x32"]
    assert machine.digest_of_sources() == after["1x64"]["about"]["sources"]
