"""sweep.py: every run once, whatever is killed on the way.

A stand-in takes the place of fairseq-hydra-train: it logs a score worked out from the run's rate
and seed. finetune.sh and everything else is real.
"""

import itertools
import json
import os
import sys
from pathlib import Path

import pytest
import torch

from examples.glue import sweep
from examples.shared.results import read_results, rows
from tests.processes import write_program
from tupe_fairseq import UsageError

STAND_IN = """#!/usr/bin/env bash
for word in "$@"; do
  case $word in
    hydra.run.dir=*) run=${word#*=\\'} run=${run%\\'} ;;
    optimization.lr=*) rate=${word//[^0-9]/} ;;
    common.seed=*) seed=${word#*=} ;;
  esac
done
mkdir -p "$run/checkpoints"
echo "$run" >>FOLDER/started
echo "[x][valid][INFO] - epoch 001 | valid on 'valid' subset | accuracy $rate.$seed | f1 1 | mcc \\
2 | num_updates 5" | tr -d '\\n' >"$run/hydra_train.log"
touch "$run/checkpoints/checkpoint_best.pt"
"""


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """Data, two checkpoints, and the stand-in on the PATH."""
    for task in ("SST-2", "WNLI"):
        data = tmp_path / "glue" / f"{task}-bin"
        (data / "input0").mkdir(parents=True)
        (data / "input0" / "dict.txt").write_text("a 1\n")
        (data / "task.json").write_text(json.dumps({"task": task, "max_positions": 32}))
    for name in "ab":
        model = {"arch": "tupe_roberta_tiny", "position_encoding": "rope", "max_positions": 32}
        state = {"cfg": {"model": model}, "model": {"of": torch.tensor(ord(name))}}
        torch.save(state, tmp_path / f"{name}.pt")
    program = tmp_path / "bin" / "fairseq-hydra-train"
    write_program(program, STAND_IN.replace("FOLDER", str(tmp_path)))
    folders = (program.parent, Path(sys.executable).parent, os.environ["PATH"])
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, folders)))
    return tmp_path


def arguments(place: Path, out: str, *more: str) -> list[str]:
    """2 models × 2 tasks × 1 rate × 2 seeds unless told otherwise."""
    models = (f"a={place}/a.pt", f"b={place}/b.pt")
    words = ["--data", f"{place}/glue", "--out", f"{place}/{out}", "--models", *models]
    words += ["--tasks", "SST-2", "WNLI", "--rates", "2e-05", "--seeds", "1", "2"]
    return [*words, "--workers", "2", *more]


def run(place: Path, out: str, *more: str) -> None:
    sweep.main(arguments(place, out, *more))


def lines(place: Path, out: str) -> list[dict]:
    key = ("model", "task", "rate", "seed")
    found = rows(read_results(place / out)) if (place / out / "results.json").exists() else []
    return sorted(found, key=lambda row: [row[k] for k in key])


def started(place: Path) -> list[str]:
    path = place / "started"
    return path.read_text().split() if path.exists() else []


def test_every_run_is_done_once(place):
    run(place, "out")
    found = lines(place, "out")
    expected = itertools.product("ab", ("SST-2", "WNLI"), [2e-05], (1, 2))
    assert [(r["model"], r["task"], r["rate"], r["seed"]) for r in found] == list(expected)
    # What the stand-in makes of each run's own rate and seed.
    assert {(r["seed"], r["score"]) for r in found} == {(1, 205.1), (2, 205.2)}
    run(place, "out")
    assert lines(place, "out") == found
    assert len(started(place)) == 8
    # More seeds on a later call: only theirs are done.
    run(place, "out", "--seeds", "2", "3", "--tasks", "WNLI", "--models", f"a={place}/a.pt")
    assert len(started(place)) == 9
    assert not list(place.rglob("model.pt"))


def test_a_word_given_twice_is_one_run(place):
    """A rate written in two ways, too: its seeds would count twice in the median."""
    twice = ("--tasks", "WNLI", "WNLI", "--rates", "2e-5", "0.00002", "--seeds", "1", "1")
    run(place, "out", *twice, "--models", f"a={place}/a.pt")
    assert len(lines(place, "out")) == len(started(place)) == 1


def test_results_of_other_settings_are_not_mixed(place):
    one = ("--tasks", "WNLI", "--seeds", "1")
    run(place, "out", *one)
    with pytest.raises(UsageError, match="other settings"):
        run(place, "out", *one, "--overrides", "optimization.max_epoch=1")
    path = place / "glue" / "WNLI-bin" / "task.json"
    whole = path.read_text()
    path.write_text(json.dumps({"task": "WNLI", "max_positions": 16}))
    with pytest.raises(UsageError, match="other settings"):
        run(place, "out", *one)
    path.write_text(whole)
    state = torch.load(place / "b.pt", weights_only=True)
    torch.save(state | {"model": {"of": torch.zeros(9)}}, place / "b.pt")
    with pytest.raises(UsageError, match="holds b/WNLI/2e-05/1 with other settings"):
        run(place, "out", *one)
    torch.save({"model": {"of": torch.zeros(3)}, "args": None}, place / "a.pt")
    with pytest.raises(UsageError, match="does not say how many positions"):
        run(place, "out", *one)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--tasks", "SST2"), "--tasks has 'SST2', but the tasks are: CoLA, SST-2"),
        (("--tasks", "RTE"), "RTE-bin/task.json is missing; preprocess_glue.sh and"),
        (("--models", "a.pt"), "--models has 'a.pt'; each must be NAME=CHECKPOINT"),
        (
            ("--models", "a=/not/there.pt"),
            "CHECKPOINT is /not/there.pt, but there is no such file",
        ),
    ],
)
def test_mistakes_are_told_before_anything_is_run(more, message, place):
    with pytest.raises(UsageError, match=message):
        run(place, "out", *more)
    assert not started(place)
