"""The report of the study: report.md, its figures, and results.json with all numbers."""

import argparse
import json
import os
import shlex
from datetime import date
from pathlib import Path
from typing import Any

import fairseq
import numpy as np
import torch

import tupe_fairseq
from examples.shared.markdown import NOT_RUN, shown, table
from examples.study import figures as figures
from examples.study.plan import BASELINE, MODELS
from examples.study.results import Results
from examples.study.tables import Lines, glue, pretraining, title
from tupe_fairseq import UsageError
from tupe_fairseq.files import replacing
from tupe_fairseq.machine import processor


def positions(results: Results, tokens: np.ndarray, folder: Path, command: str) -> Lines:
    """Heat maps of TUPE and the four correlations of BERT-A, for the first seed."""
    seed = results.arguments.seeds[0]
    lines = ["## What the models have learned about positions", ""]
    for model in (model for model in results.arguments.models if model.startswith("tupe")):
        if not (path := results.arguments.out / f"models/{model}-{seed}/model.pt").exists():
            lines += [f"{title(model)}: {NOT_RUN}.", ""]
            continue
        name = f"{MODELS[model][0]}, seed {seed}"
        out = folder / f"heads_{model}.png"
        figures.draw_heads(path.parent, name, results.plan.tokens_per_sample, out, command)
        lines += [f"{name}:", "", f"![What positions add to the scores]({out.name})", ""]
    path = results.arguments.out / f"models/{BASELINE}-{seed}"
    if not (path / "model.pt").exists():
        return [*lines, f"The four correlations of {title(BASELINE)}: {NOT_RUN}.", ""]
    batch = figures.sequences(tokens, 0, results.plan.tokens_per_sample)
    said = (
        f"{title(BASELINE)}, seed {seed}, first layer, mean of {len(batch)} held-out sequences "
        "and all heads"
    )
    out = folder / "terms.png"
    varies = figures.draw_terms(path, batch, said.replace("`", ""), out, command)
    return [
        *lines,
        f"{said} (the paper's figure 2), all with the same colour scale:",
        "",
        f"![Correlations between words and positions]({out.name})",
        "",
        "Standard deviation of each over pairs of positions, as drawn and within a sequence and "
        "head:",
        "",
        *table(
            ["query–key", "as drawn", "within a sequence"],
            [[name, f"{drawn:.4f}", f"{inside:.4f}"] for name, (drawn, inside) in varies.items()],
        ),
        "",
    ]


def device() -> str:
    """The device and the versions."""
    if torch.cuda.is_available():
        name = torch.cuda.get_device_name()
    else:
        name = f"{processor()}, {os.cpu_count()} cores"
    versions = f"torch {torch.__version__}, fairseq {fairseq.__version__}"
    return f"{name}; {versions}, tupe_fairseq {tupe_fairseq.__version__}"


def what_ran(results: Results, steps: dict[str, Any], command: str) -> Lines:
    """Completed and planned runs, times, commands."""
    arguments, plan = results.arguments, results.plan
    ended = sum(len(results.curves(model)) for model in arguments.models)
    planned = len(arguments.models) * len(arguments.seeds)
    runs = planned * len(plan.rates) * len(plan.finetuning_seeds)
    rows = [["pre-training", f"{ended} of {planned} runs", minutes(steps, "pre-training")]]
    for task in arguments.tasks:
        done = sum(line["task"] == task for line in results.finetuning)
        length = plan.tasks[task]
        long = f"{length.updates} updates of {length.batch}" if length else "as its YAML file"
        state = f"{done} of {runs} runs, each {long}" if done else NOT_RUN
        rows.append([task, state, minutes(steps, task)])
    data = sum(step["seconds"] for name, step in steps.items() if name.endswith("data"))
    rows.insert(0, ["data", "done" if data else NOT_RUN, f"{data / 60:.1f}" if data else "-"])
    total = sum(step["seconds"] for step in steps.values()) / 60
    commands = [step["command"] for name, step in steps.items() if name != "pre-training"]
    return [
        "## Runs",
        "",
        f"Scale `{arguments.scale}`, seeds {', '.join(map(str, arguments.seeds))}, "
        f"{arguments.workers} processes at a time. {device()}. Reported on "
        f"{date.today()}. In total {total:.0f} minutes of wall-clock time, over all calls.",
        "",
        *table(["step", "state", "minutes"], rows),
        "",
        "```bash",
        command,
        "```",
        "",
        "OUT, GLUE_DIR and TEXT stand for folders outside of the repository. It called, besides "
        "the pre-training in rounds (flags: `results.json`):",
        "",
        "```bash",
        *commands,
        "```",
    ]


def places(arguments: argparse.Namespace) -> dict[str, Path]:
    """The folders of the user, by the names that reports call them."""
    text = arguments.text[0]
    text = text if text.is_dir() else text.parent
    return {"OUT": arguments.out, "GLUE_DIR": arguments.glue, "TEXT": text}


def minutes(steps: dict[str, Any], name: str) -> str:
    """Wall-clock time of a step."""
    return f"{steps[name]['seconds'] / 60:.1f}" if name in steps else "-"


def write_report(arguments: argparse.Namespace, steps: dict[str, Any]) -> None:
    """Write report.md, its figures and results.json from the results so far.

    Raises:
        UsageError: there is no data yet.
    """
    data = arguments.out / "data/bin"
    if not (data / "dict.txt").exists():
        raise UsageError(f"--out {str(arguments.out)!r} holds no data yet; omit --report.")
    folder, folders = arguments.results, places(arguments)
    folder.mkdir(parents=True, exist_ok=True)
    steps = {
        name: step | {"command": shown(shlex.split(step["command"]), folders)}
        for name, step in steps.items()
    }
    command = shown(arguments.command, folders)
    results = Results(arguments)
    train, valid = (figures.read_tokens(data / split) for split in ("train", "valid"))
    symbols = len(fairseq.data.Dictionary.load(str(data / "dict.txt")))
    unigram = figures.unigram_loss(train, valid, symbols)
    curves = {model: list(results.curves(model).values()) for model in arguments.models}
    figures.draw_losses(curves, unigram, folder / "losses.png", command)
    lines = ["# Position encodings in language pre-training: the paper's study", ""]
    lines += ["Written by `examples/study/study.py`; do not edit.", ""]
    lines += pretraining(results, unigram) + glue(results)
    lines += positions(results, valid, folder, command) + what_ran(results, steps, command)
    with replacing(folder / "report.md") as aside:
        aside.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with replacing(folder / "results.json") as aside:
        numbers = numbers_behind(results, steps)
        aside.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


def numbers_behind(results: Results, steps: dict[str, Any]) -> dict[str, Any]:
    """The contents of results.json."""
    arguments = results.arguments
    path = arguments.out / "pretraining/settings.json"
    settings = json.loads(path.read_text()) if path.exists() else {}
    if settings:
        resolved = {name: folder.resolve() for name, folder in places(arguments).items()}
        settings["data"] = shown([settings["data"]], resolved)
    return {
        "plan": arguments.plan._asdict(),
        "pre-training": settings,
        "losses": {model: results.curves(model) for model in arguments.models},
        "fine-tuning": results.finetuning,
        "steps": steps,
    }
