"""Pre-train every position encoding on the same data in the same order, and compare them.

    python examples/study/compare_encodings.py DATA_BIN --out DIRECTORY

DATA_BIN is what fairseq-preprocess wrote. The encodings take turns: each round trains every one of
them a share of the updates, so that the machine's moods meet all alike and a run that is stopped
has compared something. Run again, it goes on where it stopped. In DIRECTORY:

    NAME/                 checkpoints and log.txt of an encoding
    comparison.json       what the table and the figure are made of
    comparison.md         parameters, validation loss, speed relative to `learned`
    comparison.png        validation loss against updates (matplotlib, the extra `viz`)
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from tupe_fairseq import UsageError
from tupe_fairseq.files import replacing
from tupe_fairseq.plots import figure_class, save_png
from tupe_fairseq.position import POSITION_ENCODINGS

PLUGIN = Path(__file__).parents[2] / "tupe_fairseq"
BASELINE = "learned"


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Arguments; what follows `--` goes to fairseq-train as it is."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="binarised masked-LM data")
    parser.add_argument("--out", type=Path, required=True, help="directory of the results")
    parser.add_argument("--encodings", default=",".join(POSITION_ENCODINGS), help="which")
    parser.add_argument("--updates", type=int, default=5000, help="per encoding")
    parser.add_argument("--rounds", type=int, default=5, help="turns in which they are trained")
    parser.add_argument("--arch", default="tupe_roberta_tiny")
    parser.add_argument("--seed", type=int, default=1)
    parser.epilog = "What follows -- goes to fairseq-train as it is."
    argv = sys.argv[1:] if argv is None else argv
    own, flags = argv, []
    if "--" in argv:
        own, flags = argv[: argv.index("--")], argv[argv.index("--") + 1 :]
    arguments = parser.parse_args(own)
    arguments.flags = flags
    arguments.encodings = arguments.encodings.split(",")
    for name in arguments.encodings:
        POSITION_ENCODINGS[name]
    if not (arguments.data / "dict.txt").is_file():
        raise UsageError(f"DATA_BIN is {str(arguments.data)!r}, but holds no dict.txt.")
    if arguments.updates % arguments.rounds:
        raise UsageError(
            f"--rounds must divide --updates {arguments.updates}, but is {arguments.rounds}."
        )
    return arguments


def command(arguments: argparse.Namespace, name: str, until: int) -> list[str]:
    """fairseq-train for one encoding, up to an update; the schedule is that of the whole run."""
    share = arguments.updates // arguments.rounds
    device = [] if torch.cuda.is_available() else ["--cpu"]
    flags: list[Any] = [
        *("--user-dir", PLUGIN, "--arch", arguments.arch, "--position-encoding", name),
        *("--task", "masked_lm", "--criterion", "masked_lm", "--seed", arguments.seed),
        *("--sample-break-mode", "complete", "--tokens-per-sample", 128, "--batch-size", 16),
        *("--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--adam-eps", 1e-6),
        *("--clip-norm", 1.0, "--weight-decay", 0.01, "--lr", 1e-3),
        *("--lr-scheduler", "polynomial_decay", "--warmup-updates", arguments.updates // 20),
        *("--total-num-update", arguments.updates, "--max-update", until),
        *("--validate-interval-updates", share, "--save-interval-updates", share),
        *("--keep-interval-updates", 1, "--no-epoch-checkpoints", "--num-workers", 1),
        *("--log-format", "json", "--log-interval", max(1, share // 10)),
        *("--save-dir", arguments.out / name),
        *device,
    ]
    program = [sys.executable, "-m", "fairseq_cli.train", str(arguments.data)]
    return [*program, *map(str, flags), *arguments.flags]


def train(arguments: argparse.Namespace, name: str, until: int) -> None:
    """Train one encoding up to an update, from its last checkpoint on; append to its log.

    Raises:
        UsageError: fairseq-train failed.
    """
    log = arguments.out / name / "log.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    run = command(arguments, name, until)
    with log.open("a", encoding="utf-8") as out:
        ended = subprocess.run(run, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or ["no message"])[-1]
        raise UsageError(f"training {name} failed: {last} (log: {log})")


def read_log(log: Path) -> dict[str, list[dict[str, Any]]]:
    """The entries `train_inner` and `valid` of a fairseq log, numbers as numbers."""
    entries: dict[str, list[dict[str, Any]]] = {"train_inner": [], "valid": []}
    if not log.exists():
        return entries
    for line in log.read_text(encoding="utf-8").splitlines():
        if match := re.search(r"\| (train_inner|valid) \| (\{.*\})$", line):
            values = json.loads(match[2])
            entries[match[1]].append({k: _number(v) for k, v in values.items()})
    return entries


def _number(value: Any) -> Any:
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


def updates_done(directory: Path) -> int:
    """How far the last checkpoint of an encoding is."""
    last = directory / "checkpoint_last.pt"
    if not last.exists():
        return 0
    state = torch.load(last, map_location="cpu", weights_only=True, mmap=True)
    return state["optimizer_history"][-1]["num_updates"]


def summarise(directory: Path) -> dict[str, Any]:
    """Validation losses by update, median speed of each round, parameters of one encoding."""
    log = read_log(directory / "log.txt")
    losses = {int(e["valid_num_updates"]): e["valid_loss"] for e in log["valid"]}
    checkpoint = directory / "checkpoint_last.pt"
    parameters = None
    if checkpoint.exists():
        model = torch.load(checkpoint, map_location="cpu", weights_only=True, mmap=True)["model"]
        # The LM head shares its weight with the word embeddings.
        parameters = sum(v.numel() for k, v in model.items() if k != "encoder.lm_head.weight")
    return {
        "parameters": parameters,
        "losses": losses,
        "words_per_second": statistics.median([e["wps"] for e in log["train_inner"]] or [0]),
    }


def table(results: dict[str, Any], settings: str) -> str:
    """Markdown, best loss first; all at the last update that every encoding has reached."""
    shared = set.intersection(*(set(r["losses"]) for r in results.values())) or {0}
    at = max(shared)
    base = results.get(BASELINE, {}).get("words_per_second")
    lines = [
        f"Validation loss (bits per masked token) after {at} updates. {settings}",
        "",
        "| encoding | parameters | loss | speed relative to `learned` |",
        "|---|---|---|---|",
    ]
    order = sorted(results.items(), key=lambda item: item[1]["losses"].get(at, float("inf")))
    for name, result in order:
        loss = result["losses"].get(at)
        speed = f"{result['words_per_second'] / base:.2f}" if base else "not run"
        shown = "not run" if loss is None else f"{loss:.3f}"
        lines.append(f"| `{name}` | {result['parameters']:,} | {shown} | {speed} |")
    return "\n".join(lines) + "\n"


def report(arguments: argparse.Namespace) -> None:
    """Write comparison.json, comparison.md and comparison.png from what there is so far."""
    results = {
        name: summarise(arguments.out / name)
        for name in arguments.encodings
        if updates_done(arguments.out / name)
    }
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    settings = f"{arguments.arch}, seed {arguments.seed}, {device}, {arguments.rounds} rounds."
    with replacing(arguments.out / "comparison.json") as path:
        path.write_text(json.dumps(results, indent=1))
    with replacing(arguments.out / "comparison.md") as path:
        path.write_text(table(results, settings))
    draw(results, settings, arguments.out / "comparison.png")


def draw(results: dict[str, Any], settings: str, out: Path) -> None:
    """Loss curves, one line an encoding, labelled in the order in which they end."""
    figure = figure_class()(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    ends = sorted(results, key=lambda name: list(results[name]["losses"].values())[-1])
    colours = {name: f"C{i % 10}" for i, name in enumerate(sorted(results))}
    for i, name in enumerate(reversed(ends)):
        losses = results[name]["losses"]
        style = ("-", "--", ":")[sorted(results).index(name) // 10]
        axes.plot(losses.keys(), losses.values(), style, color=colours[name], label=name, zorder=i)
    axes.set(xlabel="updates", ylabel="validation loss (bits per masked token)", title=settings)
    handles, labels = axes.get_legend_handles_labels()
    place = {"loc": "center left", "bbox_to_anchor": (1, 0.5), "frameon": False}
    axes.legend(handles[::-1], labels[::-1], **place)
    axes.spines[["top", "right"]].set_visible(False)
    save_png(figure, out, shlex.join(sys.argv))


def main(argv: list[str] | None = None) -> None:
    """Train in rounds, report after each."""
    arguments = parse(argv)
    share = arguments.updates // arguments.rounds
    ends = [turn * share for turn in range(1, arguments.rounds + 1)]
    turns = [(until, name) for until in ends for name in arguments.encodings]
    with tqdm(turns, unit="run") as progress:
        for until, name in progress:
            progress.set_postfix_str(f"{name} to update {until}")
            if updates_done(arguments.out / name) < until:
                train(arguments, name, until)
            if name == arguments.encodings[-1]:
                report(arguments)
    print((arguments.out / "comparison.md").read_text())


if __name__ == "__main__":
    try:
        main()
    except UsageError as error:
        sys.exit(f"error: {error}")
