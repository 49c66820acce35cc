"""examples/shared/runner.py: a plan of shell commands that is interrupted, fails and goes on."""

import json
import os
import re
import signal
import time
from argparse import ArgumentParser
from pathlib import Path

import pytest
import torch

from examples.shared import runner
from examples.shared.results import read_results, rows, what_ran
from examples.shared.runner import Run
from tests import processes
from tests.processes import is_alive
from tupe_fairseq import UsageError

#: Runs a and b, which wait for a file `go`.
PROGRAM = """
from argparse import ArgumentParser
from examples.shared import runner, script

def main():
    args = runner.arguments(ArgumentParser(), None, "program")
    wait = "echo $$ >>OUT/pids; while [ ! -e OUT/go ]; do sleep 0.05; done; echo 1 >>NAME"
    wait = wait.replace("OUT", str(args.out))

    def run(name):
        command = ["sh", "-c", wait.replace("NAME", str(args.out / name / "n"))]
        return runner.Run(name, {}, [command], lambda _: {})

    with runner.runner(args, {}, lambda out: None) as execute:
        execute([run("a"), run("b")])

script.run(main)
"""


def shell(name: str, script: str, **settings: object) -> Run:
    """A run that writes its result by a shell script to the file `result`."""

    def result(folder: Path) -> dict:
        return {"value": int((folder / "result").read_text())}

    return Run(name, settings, [["sh", "-c", script.replace("HERE", name)]], result)


def execute(out: Path, *stages: list[Run], more: tuple[str, ...] = ()) -> list[Path]:
    """Execute stages; returns the folders with which the report was called."""
    reports: list[Path] = []
    args = runner.arguments(ArgumentParser(), ["--out", str(out), *more], "examples.plan")
    with runner.runner(args, {"size": 1}, reports.append) as run:
        for stage in stages:
            run(stage)
    return reports


def script(out: Path, name: str, value: int) -> str:
    return f"echo x >>{out}/{name}/times; echo {value} >{out}/{name}/result"


def test_results_are_recorded_and_complete_runs_skipped(tmp_path, capsys):
    plan = [shell(name, script(tmp_path, name, 3), seed=n) for n, name in enumerate(["a/1", "b"])]
    assert len(execute(tmp_path, plan, more=("--workers", "2"))) == 3
    shown = capsys.readouterr().out
    assert re.search(r"^\d\d:\d\d:\d\d a/1: start\n", shown, re.MULTILINE)
    assert re.search(r"^\d\d:\d\d:\d\d b: done after \d+ s\n", shown, re.MULTILINE)
    results = read_results(tmp_path)
    assert rows(results, seed=1) == [{"seed": 1, "value": 3}]
    entry = results["runs"]["a/1"]
    assert entry["torch"] == torch.__version__
    assert {"seconds", "date", "device", "commit"} <= entry.keys()
    assert results["command"] == "python -m examples.plan --out OUT --workers 2"
    execute(tmp_path, plan)
    assert "2 of 2 runs are complete already" in capsys.readouterr().out
    assert (tmp_path / "b/times").read_text() == "x\n"
    table = "\n".join(what_ran(results))
    assert "| a | 1 of 1 | 0.0 |" in table


def test_a_repeated_run_is_executed_once(tmp_path):
    run = shell("a", script(tmp_path, "a", 3))
    execute(tmp_path, [run, run], more=("--workers", "2"))
    assert (tmp_path / "a/times").read_text() == "x\n"


def test_a_note_and_settings_of_removed_parts_are_kept(tmp_path):
    plan = [shell("a", script(tmp_path, "a", 3))]
    execute(tmp_path, plan)
    results = read_results(tmp_path) | {"note": "On two machines.", "plan": {"old": 1, "size": 2}}
    (tmp_path / "results.json").write_text(json.dumps(results))
    execute(tmp_path, plan)
    results = read_results(tmp_path)
    assert "On two machines." in what_ran(results)
    assert results["plan"] == {"old": 1, "size": 1}


def test_a_failed_run_is_told_and_does_not_stop_the_others(tmp_path, capsys):
    broken = f"echo tried >>{tmp_path}/a/times; echo no memory >&2; exit 3"
    plan = [shell("a", broken), shell("b", script(tmp_path, "b", 1))]
    with pytest.raises(UsageError, match=r"1 runs failed: a\."):
        execute(tmp_path, plan)
    assert f"a: failed: no memory (log: {tmp_path}/a/log.txt)\n" in capsys.readouterr().out
    assert [*map(len, (rows(read_results(tmp_path)), read_results(tmp_path)["runs"]))] == [1, 2]
    with pytest.raises(UsageError, match="runs failed: a"):
        execute(tmp_path, plan)
    assert (tmp_path / "a/times").read_text() == "tried\n" * 2
    assert (tmp_path / "b/times").read_text() == "x\n"


def test_a_run_without_its_numbers_has_failed(tmp_path):
    with pytest.raises(UsageError, match="runs failed: a"):
        execute(tmp_path, [shell("a", "true")])


def test_only_and_stages(tmp_path):
    first = [shell(name, script(tmp_path, name, 1)) for name in ("a/1", "a/2")]
    second = [shell("c", script(tmp_path, "c", 1))]
    execute(tmp_path, first, second, more=("--only", "a/1", "c"))
    runs = read_results(tmp_path)["runs"]
    assert [name for name, run in runs.items() if "result" in run] == ["a/1", "c"]
    with pytest.raises(UsageError, match=r"--only is 'd', but no run .*; .*results\.json has"):
        execute(tmp_path, first, more=("--only", "d"))


def test_data_is_made_whatever_only_selects(tmp_path):
    """And does not count as a run that has the name."""
    args = runner.arguments(ArgumentParser(), ["--out", str(tmp_path), "--only", "c"], "x")

    def study():
        with runner.runner(args, {}, lambda _: None) as run:
            run([shell("data", script(tmp_path, "data", 1))], always=True)
            run([shell("a", script(tmp_path, "a", 1))])

    with pytest.raises(UsageError, match="--only is 'c', but no run has such a name"):
        study()
    assert [*read_results(tmp_path)["runs"]] == ["data", "a"]
    assert (tmp_path / "data/result").exists()


def test_a_study_that_does_not_train_takes_no_flags_for_training(tmp_path, capsys):
    words = ["--out", str(tmp_path), "--", "--lr", "1"]
    with pytest.raises(SystemExit):
        runner.arguments(ArgumentParser(), words, "x", trains=False)
    assert "unrecognized arguments: -- --lr 1" in capsys.readouterr().err


def test_other_settings_are_refused(tmp_path):
    execute(tmp_path, [shell("a", script(tmp_path, "a", 1), rate=1)])
    changed = [shell("a", script(tmp_path, "a", 1), rate=2)]
    with pytest.raises(UsageError, match="holds a with other settings"):
        execute(tmp_path, changed)
    for path in (tmp_path / "a").iterdir():
        path.unlink()
    (tmp_path / "a").rmdir()
    execute(tmp_path, changed)
    assert rows(read_results(tmp_path)) == [{"rate": 2, "value": 1}]


def test_a_damaged_checkpoint_is_removed_before_a_run_goes_on(tmp_path):
    (tmp_path / "a").mkdir()
    torch.save({}, tmp_path / "a/checkpoint_1_2.pt")
    (tmp_path / "a/checkpoint_last.pt").write_bytes(b"PK")
    execute(tmp_path, [shell("a", script(tmp_path, "a", 1))])
    assert torch.load(tmp_path / "a/checkpoint_last.pt", weights_only=True) == {}


def pids(out: Path) -> list[int]:
    return [*map(int, (out / "pids").read_text().split())] if (out / "pids").exists() else []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=lambda how: how.name)
def test_an_interruption_ends_all_processes_and_the_next_call_goes_on(how, tmp_path):
    program = tmp_path / "program.py"
    out = tmp_path / "out"
    program.write_text(PROGRAM)
    words = ("--out", out, "--workers", 2)
    first = processes.Program(program, *words)
    first.until(lambda: len(pids(out)) == 2)
    second = processes.run(program, *words)
    assert second.returncode == 1
    assert second.stderr.startswith(
        "error: another call, or a process left by a killed call, uses"
    )
    time.sleep(0.2)
    os.kill(first.pid, how)
    ended = first.wait()
    assert ended.stderr == "stopped; run the same command again to continue.\n"
    assert not any(map(is_alive, pids(out)))
    assert all(run["seconds"] >= 0.1 for run in read_results(out)["runs"].values())
    (out / "go").touch()
    assert processes.run(program, *words).returncode == 0
    assert (out / "a/n").read_text() == "1\n"


def test_report_needs_results(tmp_path):
    with pytest.raises(UsageError, match="has no results"):
        read_results(tmp_path)
    (tmp_path / "results.json").write_text("[1]")
    with pytest.raises(UsageError, match="cannot read"):
        read_results(tmp_path)


def test_runs_are_spread_over_gpus(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    # Each waits for the other, so that both run at once.
    tell = 'cd "{}"; echo $CUDA_VISIBLE_DEVICES >{}/result; until [ -s a/result ] && '
    tell += "[ -s b/result ]; do sleep 0.02; done"
    plan = [shell(name, tell.format(tmp_path, name)) for name in "ab"]
    execute(tmp_path, plan, more=("--workers", "2"))
    assert {row["value"] for row in rows(read_results(tmp_path))} == {4, 7}


def test_workers_are_counted_from_one(tmp_path):
    with pytest.raises(UsageError, match="--workers must be at least 1, but is 0"):
        execute(tmp_path, more=("--workers", "0"))
