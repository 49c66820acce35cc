"""The best epoch of a log, and the table of a sweep, against numbers worked out by hand."""

import json

from examples.glue import collect
from examples.glue.result import best_epoch
from examples.glue.tasks import TASKS
from tests import processes

STAMP = "[2026-01-01 10:00:00,000]"


def validation(epoch: int, subset: str, updates: int, **stats: float) -> str:
    """As fairseq 0.12.3 logs it."""
    pairs = {"loss": 0.9, **stats, "wps": 0, "num_updates": updates}
    text = " | ".join(f"{key} {value:g}" for key, value in pairs.items())
    return f"{STAMP}[{subset}][INFO] - epoch {epoch:03d} | valid on '{subset}' subset | {text}\n"


def test_best_epoch_is_the_one_fairseq_keeps():
    """Of equal ones the last, whose checkpoint replaces the earlier; an epoch done twice counts
    as it was the second time."""
    log = "".join(
        (
            validation(1, "valid", 10, mcc=90, f1=1, accuracy=70),
            validation(1, "valid", 10, mcc=20.5, f1=50, accuracy=71),
            f"{STAMP}[train][INFO] - epoch 002 | loss 0.5 | accuracy 99 | num_updates 20\n",
            validation(2, "valid", 20, mcc=31.25, f1=60.5, accuracy=72, best_mcc=31.25),
            validation(3, "valid", 30, mcc=31.25, f1=61, accuracy=73, best_mcc=31.25),
            validation(4, "valid", 40, mcc=-3, f1=62, accuracy=74, best_mcc=31.25),
        )
    )
    assert best_epoch(TASKS["CoLA"], log) == {
        "task": "CoLA",
        "metric": "mcc",
        "score": 31.25,
        "metrics": {"accuracy": 73, "f1": 61, "mcc": 31.25},
        "epoch": 3,
        "updates": 30,
    }


def test_mismatched_set_is_of_the_epoch_that_is_best_on_the_matched():
    scores = {1: (70, 69), 2: (72, 70.5), 3: (71, 73)}
    log = "".join(
        validation(epoch, subset, 10 * epoch, accuracy=score)
        for epoch, pair in scores.items()
        for subset, score in zip(("valid", "valid1"), pair, strict=True)
    )
    found = best_epoch(TASKS["MNLI"], log)
    assert found["metrics"] == {"accuracy": 72, "mismatched_accuracy": 70.5}


def test_an_epoch_with_several_validations():
    log = "".join(
        validation(epoch, "valid", updates, accuracy=score)
        for epoch, updates, score in ((1, 10, 80), (1, 20, 70), (2, 30, 75))
    )
    found = best_epoch(TASKS["RTE"], log)
    assert (found["score"], found["epoch"], found["updates"]) == (80, 1, 10)


def test_log_without_validation():
    assert best_epoch(TASKS["RTE"], "[train][INFO] - epoch 001 | loss 3\n") is None


def line(model, task, rate, seed, score, **metrics) -> dict:
    keys = {"model": model, "task": task, "rate": rate, "seed": seed}
    return keys | {"score": score, "metrics": metrics}


RESULTS = [
    # Medians 61 and 60.5: an outlier does not count, as it would in a mean.
    *(line("a", "CoLA", 2e-5, seed, s) for seed, s in enumerate((61, 10, 62))),
    *(line("a", "CoLA", 3e-5, seed, s) for seed, s in enumerate((60, 61, 90, 60))),
    *(line("b", "CoLA", 3e-5, seed, s) for seed, s in enumerate((55, 57))),
    # The mismatched set would be best at the other rate.
    line("a", "MNLI", 2e-5, 1, 80, accuracy=80, mismatched_accuracy=79),
    line("a", "MNLI", 3e-5, 1, 70, accuracy=70, mismatched_accuracy=85),
]


def test_table_is_the_papers():
    rows = collect.render(RESULTS).split("\n")
    assert rows[:4] == [
        "| model | CoLA (mcc) | MNLI (accuracy) | MNLI-mm (accuracy) | mean |",
        "| --- | --- | --- | --- | --- |",
        "| a | **61.00** (2e-05: 10.00 to 62.00, 3 runs) | **80.00** (2e-05: 80.00 to 80.00, 1 "
        "run) | **79.00** (2e-05: 79.00 to 79.00, 1 run) | 73.33 |",
        "| b | **56.00** (3e-05: 55.00 to 57.00, 2 runs) | - | - | - |",
    ]
    assert "| a | CoLA | 61.00 (3) | 60.50 (4) |" in rows
    assert "| b | CoLA | - | 56.00 (2) |" in rows
    assert "| b | MNLI | - | - |" not in rows


def test_mean_is_the_papers():
    """TUPE-R after 1M updates: 85.04, in which WNLI, absent from the paper, does not count."""
    scores = {"QNLI": 92.17, "QQP": 91.30, "SST-2": 93.26, "CoLA": 63.56}
    scores |= {"MRPC": 89.89, "RTE": 73.56, "STS-B": 89.23}
    results = [line("a", task, 2e-5, 1, score) for task, score in scores.items()]
    results.append(line("a", "MNLI", 2e-5, 1, 86.21, mismatched_accuracy=86.19))
    for more in ([], [line("a", "WNLI", 2e-5, 1, 56.34)]):
        header, _, row = collect.render(results + more).split("\n")[:3]
        assert row.endswith("| 85.04 |")
        assert header.endswith("| mean without WNLI |" if more else "| mean |")


def test_equal_medians_give_the_lower_rate():
    rates = {3e-5: [50.0], 2e-5: [50.0], 4e-5: [49.0]}
    assert collect.best_of(rates) == collect.Best(2e-5, [50.0])


def test_report_is_written_from_the_results_alone(tmp_path):
    runs = {}
    for number, result in enumerate(RESULTS):
        settings = {key: result[key] for key in ("model", "task", "rate", "seed")}
        runs[str(number)] = {"settings": settings, "result": result}
    runs["planned"] = {"settings": {"model": "c", "task": "RTE"}}
    results = {"command": "sweep", "plan": {}, "runs": runs}
    (tmp_path / "results.json").write_text(json.dumps(results))
    assert processes.run("examples.glue.collect", tmp_path).returncode == 0
    assert collect.render(RESULTS) in (tmp_path / "report.md").read_text()
