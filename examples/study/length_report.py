"""The report of length.py: report.md, its figures, and results.json with the numbers."""

import argparse
import json
import shlex
from collections.abc import Iterator
from datetime import date
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

from examples.shared.markdown import shown, spread, table
from examples.study.algorithmic import TRAINED
from examples.study.comparison import summarise
from examples.study.length_figures import draw_accuracy, draw_growth
from examples.study.length_measures import FACTORS, KINDS
from examples.study.length_results import (
    BREAKS,
    HOLDS,
    Found,
    Solved,
    any_run,
    growth,
    read_algorithmic,
    read_losses,
    trained_length,
    verdict,
)
from examples.study.report import device
from tupe_fairseq.files import replacing


def bands(trained: int) -> list[tuple[int, int]]:
    """Ranges of positions: quarters of the trained length at first, then doubling."""
    edges = [0, trained // 4, trained // 2, *(k * trained for k in FACTORS)]
    return list(pairwise(edges))


def by_position(runs: dict[int, dict[str, Any]], unit: int) -> Iterator[str]:
    """Mean loss in each range of positions, in sequences of the longest length."""
    for start, stop in bands(unit):
        values = []
        for run in runs.values():
            losses = run[str(FACTORS[-1])]["by_position"][start:stop]
            values.append([loss for loss in losses if loss is not None])
        yield spread((mean(each) for each in values if each), "{:.3f}")


def listed(names: list[str]) -> str:
    """Names in a sentence."""
    return ", ".join(f"`{name}`" for name in names) or "nothing"


def losses_part(part: str, found: Found, trained: int, missing: list[str]) -> list[str]:
    """Lines of the report on a kind of models."""
    kind = KINDS[part]
    unit = trained - kind.special
    lengths = [f"{k * unit + kind.special:,} tokens" for k in FACTORS]

    def rows(key: str) -> Iterator[list[str]]:
        for name, runs in found.items():
            cells = [spread((r[str(k)][key] for r in runs.values()), "{:.3f}") for k in FACTORS]
            yield [f"`{name}`", *cells]

    changes = {name: growth(runs)[FACTORS[-1]] for name, runs in found.items()}
    verdicts = [[f"{each:+.3f}", verdict(each)] for each in changes.values()]
    ends = [f"{start:,} to {stop - 1:,}" for start, stop in bands(unit)]
    positions = ([f"`{name}`", *by_position(runs, unit)] for name, runs in found.items())
    return [
        *(f"## {kind.title}", ""),
        f"Trained at {trained} tokens. Loss in bits per token of the same "
        f"{any_run(found)['1']['tokens']:,} held-out tokens at all lengths; median and range over "
        "seeds, or one seed. Growth: the last length minus the first, mean over seeds. A model "
        f"holds at a growth of at most {HOLDS} and breaks above {BREAKS}. Trained tables of "
        "positions are extended (`--extend-positions hierarchical`). A name after a comma is a "
        "`--rope-scaling` of the same checkpoint, without training, or `window`: "
        f"`--attention-window {trained - 1}`, which hides keys at distances beyond the trained "
        "ones. Planned and not run: "
        f"{listed(missing)}.",
        "",
        *table(
            ["encoding", *lengths, "growth", "verdict"],
            ([*row, *more] for row, more in zip(rows("mean"), verdicts, strict=True)),
        ),
        *("", f"### The last {unit} tokens of each block", ""),
        "The same tokens at the end of sequences of each length, so that only their context "
        "grows. In the table above, shorter sequences have more tokens with little context, which "
        "raises their loss (the early-token effect).",
        *("", *table(["encoding", *lengths], rows("last"))),
        *("", f"### By position of the text, in sequences of {lengths[-1]}", ""),
        *(*table(["encoding", *ends], positions), ""),
    ]


def algorithmic_part(solved: Solved, planned: list[str]) -> list[str]:
    """Lines of the report on the tasks of algorithmic.py."""
    if not solved:
        return ["## Algorithmic tasks", "", "Not run.", ""]
    rows, missing = [], []
    for task, found in solved.items():
        missing += [f"{name} ({task})" for name in planned if name not in found]
        for encoding, lines in found.items():
            short = [mean_accuracy(line, range(TRAINED + 1)) for line in lines]
            cells = (
                spread((100 * value for value in column), "{:.1f}")
                for column in (short, [line["score"] for line in lines])
            )
            rows.append([f"`{task}`", f"`{encoding}`", *cells])
            training = f"{lines[0]['updates']:,} updates of {lines[0]['batch_size']} strings"
    return [
        *("## Algorithmic tasks", "", "![Accuracy by length](algorithmic.png)", ""),
        f"Share of correct symbols in percent, up to the trained {TRAINED} symbols and beyond; "
        f"half are right by chance. {training}. Median and range over seeds, or one seed. Planned "
        f"and not run: {listed(missing)}.",
        *("", *table(["task", "encoding", f"up to {TRAINED}", f"beyond {TRAINED}"], rows), ""),
    ]


def mean_accuracy(line: dict[str, Any], lengths: range) -> float:
    """Mean over the tested lengths among some."""
    return mean(value for n, value in line["by_length"].items() if int(n) in lengths)


def runs_part(out: Path, results: dict[str, Found], solved: Solved, command: str) -> list[str]:
    """Lines of the report on device, seeds, time and commands."""
    lines = ["## Runs", "", f"{device()}. Reported on {date.today()}.", ""]
    rows = []
    for part, found in results.items():
        seeds = {name: sorted(runs) for name, runs in found.items() if "," not in name}
        trained = [out / part / name / str(seed) for name in seeds for seed in seeds[name]]
        said = "; ".join(f"`{name}` {', '.join(map(str, own))}" for name, own in seeds.items())
        rows.append([part, len(trained), f"{sum(map(minutes, trained)):.0f}", said])
    if strings := [line for found in solved.values() for own in found.values() for line in own]:
        drawn = sorted({line["seed"] for line in strings})
        spent = sum(line["minutes"] for line in strings)
        rows.append(["algorithmic", len(strings), f"{spent:.0f}", ", ".join(map(str, drawn))])
    clock = "minutes of training (processor time; wall-clock on a GPU)"
    lines += [*table(["part", "models", clock, "seeds"], rows), ""]
    lines += ["```bash", command, "```", ""]
    for part in results:
        flags = json.loads((out / part / "settings.json").read_text())["flags"]
        # settings.json leaves out the folder of the package.
        flags[1:1] = ["tupe_fairseq"]
        lines += [f"Flags of all {part} models, before those of each encoding and seed (the last "]
        lines += ["of two equal flags counts):", "", "```bash", shlex.join(flags), "```", ""]
    return lines


def minutes(folder: Path) -> float:
    """Time of a training, from that of its updates between reports."""
    log = summarise(folder)
    return mean(log["seconds"].values() or [0]) * max(log["losses"], default=0) / 60


def write_report(args: argparse.Namespace) -> None:
    """Write the report from the results so far, also those of earlier calls.

    Args:
        args: of length.py.
    """
    args.results.mkdir(parents=True, exist_ok=True)
    command = shown(args.command, {"OUT": args.out, "DATA_BIN": args.data})
    results = {part: found for part in KINDS if (found := read_losses(args.out / part))}
    lengths = {part: trained_length(part, found) for part, found in results.items()}
    lines = ["# Longer texts than trained", ""]
    lines += ["Written by `examples/study/length.py`; do not edit.", ""]
    if results:
        draw_growth(results, lengths, args.results / "length.png", command)
        lines += ["![Growth of the loss with the length](length.png)", ""]
        lines += ["Blue: holds; grey: degrades; red: breaks; dashed: scalings and windows.", ""]
    for part, found in results.items():
        missing = [name for name in getattr(args, part) if name not in found]
        lines += losses_part(part, found, lengths[part], missing)
    if solved := read_algorithmic(args.out / "algorithmic"):
        draw_accuracy(solved, args.results / "algorithmic.png", command)
    lines += algorithmic_part(solved, args.algorithmic)
    lines += runs_part(args.out, results, solved, command)
    with replacing(args.results / "report.md") as aside:
        aside.write_text("\n".join(lines), encoding="utf-8")
    with replacing(args.results / "results.json") as aside:
        aside.write_text(
            json.dumps(numbers(results) | {"algorithmic": solved}, indent=1) + "\n",
            encoding="utf-8",
        )


def numbers(results: dict[str, Found]) -> dict[str, Any]:
    """The contents of results.json: the losses without those by position."""
    kept = ("mean", "last")
    return {
        part: {
            name: {
                seed: {k: {key: losses[key] for key in kept} for k, losses in run.items()}
                for seed, run in runs.items()
            }
            for name, runs in found.items()
        }
        for part, found in results.items()
    }
