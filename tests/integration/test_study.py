"""examples/study/study.py on toy text and a toy task: killed, resumed, reported.

Pre-training is real; a stand-in takes the place of fairseq-hydra-train: TUPE scores 60, others 50.
"""

import argparse
import json
import os
import random
import re
import shlex
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from fairseq import options

from examples.shared.markdown import shorten, shown
from examples.study import plan, study, training
from examples.study import results as study_results
from examples.study import tables as study_tables
from examples.study.training import fixed_flags
from tests import processes
from tests.integration.hydra_configs import GLUE, QUIET, composed
from tests.integration.test_compare_encodings import wait_until
from tests.scripts import ROOT
from tupe_fairseq import UsageError

STAND_IN = """#!/usr/bin/env bash
score=50
for word in "$@"; do
  case $word in
    hydra.run.dir=*) run=${word#*=\\'} run=${run%\\'} ;;
    model.position_encoding=tupe*) score=60 ;;
  esac
done
mkdir -p "$run/checkpoints"
echo "$run" >>FOLDER/started
stats="accuracy 1 | f1 1 | mcc $score | num_updates 5"
echo "[x] - epoch 001 | valid on 'valid' subset | $stats" >"$run/hydra_train.log"
touch "$run/checkpoints/checkpoint_best.pt"
"""


@pytest.fixture
def place(forking_path, forking_python, tmp_path, monkeypatch) -> Path:
    """text.txt, glue/CoLA, and the stand-in on the PATH."""
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(2, 6))) for _ in range(300)]
    lines = [" ".join(rng.choices(words, k=60)) for _ in range(60)]
    (tmp_path / "text.txt").write_text("\n\n".join(lines))
    (tmp_path / "glue/CoLA").mkdir(parents=True)
    for name, size in (("train", 40), ("dev", 400)):
        rows = (f"x\t{i % 2}\t\t{' '.join(rng.choices(words, k=5))}\n" for i in range(size))
        (tmp_path / f"glue/CoLA/{name}.tsv").write_text("".join(rows))
    program = tmp_path / "bin/fairseq-hydra-train"
    program.parent.mkdir()
    program.write_text(STAND_IN.replace("FOLDER", str(tmp_path)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", os.pathsep.join((str(program.parent), forking_path)))
    monkeypatch.setattr(sys, "executable", forking_python)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return tmp_path


def arguments(place: Path, *more: str) -> list[str]:
    where = ["--text", f"{place}/text.txt", "--glue", f"{place}/glue", "--out", f"{place}/out"]
    few = ["--models", "learned", "tupe_a", "--seeds", "1", "2", "--tasks", "CoLA", "RTE"]
    return [*where, "--scale", "smoke", *few, "--workers", "2", *more]


def rows(report: str, first: str) -> list[list[str]]:
    """Cells of the table whose header begins so."""
    found = report.partition(f"\n| {first} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in found]


@pytest.mark.slow
def test_killed_study_goes_on(place, monkeypatch):
    out, words = place / "out", arguments(place)
    script = ROOT / "examples/study/study.py"
    killed = processes.Program(script, *words)
    try:
        wait_until(lambda: [*out.glob("pretraining/*/*/checkpoint_last.pt")], 600)
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
    assert json.loads((out / "journal.json").read_text())["data"]["seconds"] > 0
    monkeypatch.setattr(training, "run_module", processes.run_module)
    study.main(words)
    report = (out / "report/report.md").read_text()
    logs = {path: path.read_text() for path in out.glob("pretraining/*/*/log.txt")}
    assert len(logs) == 4
    check_report(report, out / "report")

    # What is done stays, and a task that fails does not keep the others from being reported.
    (place / "glue/RTE").mkdir()
    with pytest.raises(UsageError, match="RTE data failed"):
        study.main(words)
    assert logs == {path: path.read_text() for path in logs}
    assert len((place / "started").read_text().split()) == 4
    again = (out / "report/report.md").read_text()
    assert again.partition("## Runs")[0] == report.partition("## Runs")[0]
    with pytest.raises(UsageError, match="holds a run with other settings"):
        study.main([*words, "--text", f"{place}/glue"])


def check_report(report: str, folder: Path) -> None:
    """Its tables and figures."""
    (learned, tupe) = rows(report, "model")
    assert learned[0] == "BERT-A (`learned`)"
    assert learned[3:5] == ["-", "100 % (100 % to 100 %)"]
    assert (learned[6], tupe[6]) == ("2 of 2", "2 of 2")
    glue = report.partition("## GLUE")[2]
    assert "**60.00** (0.001: 60.00 to 60.00, 2 runs)" in glue
    # The seeds agree; of 400 examples one standard error is 4.2, of a difference √2 as much.
    assert "| TUPE-A (`tupe_a`) | +10.00 ± 11.57 (noise) |" in glue
    assert rows(glue, "task") == [["CoLA (mcc)", "400", "0.00", "BERT-A, TUPE-A"]]
    states = {row[0]: row[1] for row in rows(report, "step")}
    assert states == {
        "data": "done",
        "pre-training": "4 of 4 runs",
        "CoLA": "4 of 4 runs, each 3 updates of 4",
        "RTE": "not run",
    }
    varies = {row[0]: float(row[2]) for row in rows(report, "query–key")}
    assert varies["word–word"] > 0
    figures = set(re.findall(r"\]\((\w+\.png)\)", report))
    assert figures == {"losses.png", "heads_tupe_a.png", "terms.png"}
    for name in figures:
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
        assert str(folder.parents[1]).encode() not in (folder / name).read_bytes()
    numbers = json.loads((folder / "results.json").read_text())
    check_places(report, numbers, folder)
    assert set(numbers["losses"]["learned"]["2"]) == {"2", "4"}
    assert len(numbers["fine-tuning"]) == 4


def check_places(report: str, numbers: dict, folder: Path) -> None:
    """Commands name no folder of this machine."""
    place = folder.parents[1]
    for text in (report, json.dumps(numbers)):
        assert str(place) not in text
        assert str(ROOT) not in text
        assert sys.executable not in text
    assert "--text TEXT/text.txt --glue GLUE_DIR --out OUT --scale smoke" in report
    assert "\nbash examples/pretraining/prepare.sh --out OUT/data " in report
    assert "\npython -m examples.glue.sweep --data OUT/glue-data --out OUT/glue/CoLA " in report
    assert "learned-1=OUT/models/learned-1/model.pt" in report
    assert numbers["pre-training"]["data"] == "OUT/data/bin"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--tasks", "MNLI"), "--tasks has 'MNLI'; the scale has CoLA"),
        (("--glue", "/not/there"), "--glue is '/not/there', but there is no such path"),
        (("--text", "/not/there"), "--text is '/not/there', but there is no such path"),
        (("--workers", "-1"), "--workers must be at least 1, but is -1"),
        (("--report",), "holds no data yet"),
    ],
)
def test_mistakes(more, message, place):
    with pytest.raises(UsageError, match=message):
        study.main(arguments(place, *more))


# ---------------------------------------------------------------- the plan


@pytest.mark.parametrize("scale", plan.SCALES)
def test_fairseq_understands_the_pretraining_of(scale, place):
    made = study.Study(study.parse(arguments(place, "--scale", scale, "--tasks", "RTE")))
    training = made.training()
    assert training.updates % (training.rounds * training.validations) == 0
    alone = study.parse(arguments(place, "--scale", scale, "--seeds", "2", "--tasks", "RTE"))
    assert fixed_flags(study.Study(alone).training()) == fixed_flags(training)
    seen = set()
    for name, own in plan.MODELS.items():
        flags = [str(place), *fixed_flags(training), *own[1]]
        parsed = options.parse_args_and_arch(options.get_training_parser(), flags)
        seen.add((parsed.position_encoding, getattr(parsed, "tie_cls", False)))
        assert parsed.arch == plan.SCALES[scale].arch, name
        assert parsed.max_positions >= plan.SCALES[scale].glue_tokens, "GLUE would be refused"
    assert seen == {
        *(("learned", False), ("t5", False)),
        *(("tupe_a", True), ("tupe_a", False), ("tupe_r", False)),
    }


@pytest.mark.parametrize("task", plan.SCALES["tiny"].tasks)
@pytest.mark.filterwarnings(*QUIET)
def test_hydra_understands_the_finetuning_of(task, tmp_path):
    changed = study.overrides(plan.SCALES["tiny"].tasks[task])[1:]
    config = composed(GLUE / f"{task.lower().replace('-', '_')}.yaml", *changed)
    updates = plan.SCALES["tiny"].tasks[task].updates
    assert config.optimization.max_update == updates
    assert config.lr_scheduler.total_num_update == updates
    assert config.lr_scheduler.warmup_updates == round(0.06 * updates)
    assert study.overrides(None) == []


def test_readme_commands_are_understood(place, monkeypatch):
    monkeypatch.chdir(place)
    for folder in ("wiki/AA", "glue_data"):
        (place / folder).mkdir(parents=True)
    text = (ROOT / "examples/study/README.md").read_text().replace("\\\n", " ")
    found = re.findall(r"^python -m examples\.study\.study (.*)$", text, flags=re.MULTILINE)
    assert found
    for line in found:
        assert study.parse(shlex.split(line, comments=True)).plan in plan.SCALES.values()


# ---------------------------------------------------------------- the results


def test_scores_are_of_the_best_rate_and_by_seed_of_pretraining(tmp_path):
    few = argparse.Namespace(
        out=tmp_path, plan=plan.SCALES["tiny"], models=["learned"], seeds=[1, 2], tasks=["RTE"]
    )
    runs = [(1, 1e-3, 1, 50.0), (1, 1e-3, 2, 70.0), (2, 1e-3, 1, 64.0), (1, 5e-4, 1, 10.0)]
    runs += [(3, 1e-3, 1, 99.0)]
    (tmp_path / "glue/RTE").mkdir(parents=True)
    with (tmp_path / "glue/RTE/results.jsonl").open("w") as file:
        for pretrained, rate, seed, score in runs:
            run = {"model": f"learned-{pretrained}", "task": "RTE", "rate": rate, "seed": seed}
            file.write(json.dumps(run | {"score": score, "metrics": {}}) + "\n")
    results = study_results.Results(few)
    # Seed 3 was not asked for.
    assert results.scores("learned", "RTE") == {1: 60.0, 2: 64.0}
    assert results.scores("learned", "CoLA") == {}
    assert results.ran() == ["RTE"]


def test_pretraining_that_is_not_done_is_not_compared(tmp_path):
    few = argparse.Namespace(
        out=tmp_path, plan=plan.SCALES["smoke"], models=["learned", "t5"], seeds=[1, 2], tasks=[]
    )
    results = study_results.Results(few)
    run = {"parameters": 1000, "seconds": {4: 0.5}}
    results.pretraining = {
        "learned": {1: run | {"losses": {2: 8.0, 4: 6.0}}, 2: run | {"losses": {2: 8.0}}},
        "t5": {1: run | {"losses": {2: 6.5, 4: 5.5}}, 2: run | {"losses": {2: 1.0, 4: 1.0}}},
    }
    learned, t5 = study_tables.pretraining_rows(results)
    assert learned == ["BERT-A (`learned`)", "1,000", "6.000", "-", "100 %", "500", "1 of 2"]
    # Half way from 2 to 4 of 4 updates; seed 2 has no BERT-A to compare with.
    assert t5[2:] == ["3.250 (1.000 to 5.500)", "-0.500 (one seed)", "75 %", "500", "2 of 2"]


@pytest.mark.parametrize(
    "numbered", ["wiki_{08..11}", "'a b/'{1..3}", "1 2", "v9 v10 v11", "a1 a3 a5", "x{1..3} y4"]
)
def test_numbered_files_are_shortened_as_bash_writes_them(numbered):
    echoed = subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {numbered}"], capture_output=True, text=True, check=True
    )
    words = shlex.join(["python", *echoed.stdout.splitlines(), "--out", "folder 1"])
    shown = shorten(words)
    assert shown == f"python {numbered} --out 'folder 1'"


def test_commands_are_shown_without_absolute_paths(tmp_path):
    words = ["python", ROOT / "examples/x.py", f"a={tmp_path}/out/1", "../near", "/far/away", "1"]
    shown_words = shown(words, {"OUT": tmp_path / "out"})
    assert shown_words == "python examples/x.py a=OUT/1 ../near away 1"
