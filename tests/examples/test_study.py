"""examples/study/study.py on toy text and a toy task.

Pre-training is real; a stand-in takes the place of fairseq-hydra-train: TUPE scores 60, others 50.
"""

import os
import random
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from fairseq import options

from examples.shared.results import read_results, rows
from examples.study import (
    benchmark_report,
    length_report,
    length_tuning,
    long_inputs_report,
    plan,
    report,
    study,
    tables,
)
from tests import ROOT
from tests.examples.hydra_configs import GLUE, QUIET, composed
from tests.processes import write_program
from tupe_fairseq import UsageError
from tupe_fairseq.machine import shown

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
    write_program(program, STAND_IN.replace("FOLDER", str(tmp_path)))
    monkeypatch.setenv("PATH", os.pathsep.join((str(program.parent), forking_path)))
    monkeypatch.setattr(sys, "executable", forking_python)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return tmp_path


def arguments(place: Path, *more: str) -> list[str]:
    where = ["--text", f"{place}/text.txt", "--glue", f"{place}/glue", "--out", f"{place}/out"]
    few = ["--models", "learned", "tupe_a", "--seeds", "1", "2", "--tasks", "CoLA", "RTE"]
    return [*where, "--scale", "smoke", *few, "--workers", "2", *more]


def cells(report: str, first: str) -> list[list[str]]:
    """Cells of the table whose header begins so."""
    found = report.partition(f"\n| {first} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in found]


@pytest.mark.slow
def test_whole_study(place):
    out, words = place / "out", arguments(place)
    study.main(words)
    check_report(out)
    logs = {path: path.read_text() for path in out.glob("pretraining/*/*/log.txt")}
    assert len(logs) == 4

    # What is done stays, and a task that fails does not keep the others from being reported.
    before = (out / "report.md").read_text()
    (place / "glue/RTE").mkdir()
    with pytest.raises(UsageError, match="1 runs failed: prepare/RTE"):
        study.main(words)
    assert logs == {path: path.read_text() for path in logs}
    assert len((place / "started").read_text().split()) == 4
    assert (out / "report.md").read_text().partition("## Runs")[0] == before.partition("## Runs")[
        0
    ]
    with pytest.raises(UsageError, match="holds prepare/text with other settings"):
        study.main([*words, "--text", f"{place}/glue"])


def check_report(out: Path) -> None:
    """Its tables and figures."""
    text = (out / "report.md").read_text()
    learned, tupe = cells(text, "model")
    assert learned[0] == "BERT-A (`learned`)"
    assert learned[3:5] == ["-", "100 % (100 % to 100 %)"]
    assert (learned[6], tupe[6]) == ("2 of 2", "2 of 2")
    glue = text.partition("## GLUE")[2]
    assert "**60.00** (0.001: 60.00 to 60.00, 2 runs)" in glue
    # The seeds agree; of 400 examples one standard error is 4.2, of a difference √2 as much.
    assert "| TUPE-A (`tupe_a`) | +10.00 ± 11.57 (noise) |" in glue
    assert cells(glue, "task") == [["CoLA (mcc)", "400", "0.00", "BERT-A, TUPE-A"]]
    states = {row[0]: row[1] for row in cells(text, "part")}
    assert states == {
        "text": "1 of 1",
        "pre-training": "4 of 4",
        "positions": "2 of 2",
        "GLUE data": "1 of 1",
        "CoLA": "4 of 4",
    }
    varies = {row[0]: float(row[2]) for row in cells(text, "query–key")}
    assert varies["word–word"] > 0
    figures = set(re.findall(r"\]\((\w+\.png)\)", text))
    assert figures == {"losses.png", "heads_tupe_a.png", "terms.png"}
    for name in figures:
        assert (out / name).read_bytes().startswith(b"\x89PNG")
        assert str(out.parent).encode() not in (out / name).read_bytes()
    numbers = (out / "results.json").read_text()
    # Commands name no folder of this machine.
    for folder in (str(out.parent), str(ROOT), sys.executable):
        assert folder not in text + numbers
    results = read_results(out)
    assert set(rows(results, model="learned", seed=2)[0]["losses"]) == {"2", "4"}
    assert "--text text.txt --glue glue --out OUT --scale smoke" in text
    assert "bash examples/pretraining/prepare.sh --out OUT/data " in numbers


COMMITTED = {
    "tiny": report,
    "benchmark": benchmark_report,
    "length": length_report,
    "length/at_128": length_report,
    "length_tuning": length_tuning,
    "long_inputs": long_inputs_report,
}


@pytest.mark.parametrize(("name", "written"), COMMITTED.items())
def test_committed_report_is_that_of_the_committed_results(name, written, tmp_path):
    folder = ROOT / "examples/study" / name
    for file in folder.glob("*.json"):
        shutil.copy(file, tmp_path)
    written.report(tmp_path)
    assert (tmp_path / "report.md").read_text() == (folder / "report.md").read_text()


# ---------------------------------------------------------------- the plan


@pytest.mark.parametrize("scale", plan.SCALES)
def test_fairseq_understands_the_pretraining_of(scale, place, toy_masked_lm_data):
    args = study.parse(arguments(place, "--scale", scale, "--tasks", "RTE"))
    args.data, args.models = toy_masked_lm_data, list(plan.MODELS)
    seen = set()
    for run in study.pretraining_runs(args)[: len(plan.MODELS)]:
        flags = [*map(str, run.commands[0][4:])]
        parsed = options.parse_args_and_arch(options.get_training_parser(), flags)
        seen.add((parsed.position_encoding, getattr(parsed, "tie_cls", False)))
        assert parsed.arch == plan.SCALES[scale].arch
        assert parsed.max_positions >= plan.SCALES[scale].glue_tokens, "GLUE would be refused"
    assert seen == {
        *(("learned", False), ("t5", False)),
        *(("tupe_a", True), ("tupe_a", False), ("tupe_r", False)),
    }


@pytest.mark.parametrize("task", plan.SCALES["tiny"].tasks)
@pytest.mark.filterwarnings(*QUIET)
def test_hydra_understands_the_finetuning_of(task, tmp_path):
    changed = study.overrides(plan.SCALES["tiny"].tasks[task])
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


def results_of(*runs: tuple[dict, dict | None]) -> dict:
    entries = ({"settings": a, **({} if b is None else {"result": b})} for a, b in runs)
    return {"plan": plan.SCALES["smoke"]._asdict(), "runs": dict(enumerate(entries))}


def test_scores_are_of_the_best_rate_and_by_seed_of_pretraining():
    runs = [(1, 1e-3, 1, 50.0), (1, 1e-3, 2, 70.0), (2, 1e-3, 1, 64.0), (1, 5e-4, 1, 10.0)]
    results = results_of(
        *(
            (
                {"model": "t5", "task": "RTE", "pretrained": own, "rate": rate, "seed": seed},
                {"score": score, "metrics": {}},
            )
            for own, rate, seed, score in runs
        )
    )
    assert tables.scores(results, "t5", "RTE") == {1: 60.0, 2: 64.0}
    assert tables.scores(results, "t5", "CoLA") == {}


def test_pretraining_that_is_not_done_is_not_compared():
    def run(model, seed, losses):
        result = {"parameters": 1000, "seconds": 0.5, "losses": losses}
        settings = {"part": "pre-training", "model": model, "seed": seed}
        return settings, result if losses else None

    results = results_of(
        *(run("learned", 1, {"2": 8.0, "4": 6.0}), run("learned", 2, None)),
        *(run("t5", 1, {"2": 6.5, "4": 5.5}), run("t5", 2, {"2": 1.0, "4": 1.0})),
    )
    learned, t5 = tables.pretraining_rows(results)
    assert learned == ["BERT-A (`learned`)", "1,000", "6.000", "-", "100 %", "500", "1 of 2"]
    # Half way from 2 to 4 of 4 updates; seed 2 has no BERT-A to compare with.
    assert t5[2:] == ["3.250 (1.000 to 5.500)", "-0.500 (one seed)", "75 %", "500", "2 of 2"]


def test_commands_are_shown_without_absolute_paths(tmp_path):
    words = ["python", ROOT / "examples/x.py", f"a={tmp_path}/out/1", "../near", "/far/away", "1"]
    words.append(f"{tmp_path}/out/lr=2/model.pt")
    shown_words = shown(words, {"OUT": tmp_path / "out"})
    assert shown_words == "python examples/x.py a=OUT/1 ../near away 1 OUT/lr=2/model.pt"
