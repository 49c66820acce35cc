"""Pre-train every position encoding on the same data in the same order, and compare them.

    python examples/study/compare_encodings.py DATA_BIN --out DIRECTORY

DATA_BIN is what fairseq-preprocess wrote. The encodings take turns: each round trains every one of
them a share of the updates, so that the machine's moods meet all alike and a run that is stopped
has compared something. Run again, it goes on where it stopped; with --report, it writes the table
and the figure of what there is, also while another call trains. In DIRECTORY:

    NAME/                 checkpoints and log.txt of an encoding
    settings.json         what all were trained with; another call must have the same
    comparison.json       what the table and the figure are made of
    comparison.md         parameters, validation loss, speed relative to `learned`
    comparison.png        validation loss against updates (matplotlib, the extra `viz`)
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from examples.shared import script
from examples.shared.jobs import parse_with_flags
from examples.shared.locks import locked
from examples.study.comparison import report
from examples.study.training import Training, keep_settings, run_rounds
from tupe_fairseq import UsageError
from tupe_fairseq.position import POSITION_ENCODINGS


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Arguments; what follows `--` goes to fairseq-train as it is."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="binarised masked-LM data")
    parser.add_argument("--out", type=Path, required=True, help="directory of the results")
    parser.add_argument("--encodings", default=",".join(POSITION_ENCODINGS), help="which")
    parser.add_argument("--updates", type=int, default=9600, help="per encoding")
    parser.add_argument("--rounds", type=int, default=4, help="turns in which they are trained")
    parser.add_argument("--validations", type=int, default=2, help="in each round")
    parser.add_argument("--workers", type=int, default=1, help="encodings trained side by side")
    parser.add_argument("--arch", default="tupe_roberta_tiny")
    parser.add_argument("--tokens-per-sample", type=int, default=32, help="length of a sequence")
    parser.add_argument("--batch-size", type=int, default=32, help="sequences")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", action="store_true", help="only report what there is")
    arguments = parse_with_flags(parser, argv)
    arguments.encodings = arguments.encodings.split(",")
    check(arguments)
    return arguments


def check(arguments: argparse.Namespace) -> None:
    """Refuse what cannot be trained.

    Raises:
        UsageError: an unknown encoding, no data, or rounds that do not come out even.
    """
    for name in arguments.encodings:
        POSITION_ENCODINGS[name]
    if not (arguments.data / "dict.txt").is_file():
        raise UsageError(f"DATA_BIN is {str(arguments.data)!r}, but holds no dict.txt.")
    if min(arguments.rounds, arguments.validations, arguments.workers) < 1:
        raise UsageError("--rounds, --validations and --workers must be at least 1.")
    parts = arguments.rounds * arguments.validations
    if arguments.updates < 1 or arguments.updates % parts:
        raise UsageError(
            f"--rounds times --validations must divide --updates {arguments.updates}, but is "
            f"{parts}."
        )


def describe(arguments: argparse.Namespace) -> str:
    """The settings in a sentence."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return (
        f"{arguments.arch}, {arguments.batch_size} × {arguments.tokens_per_sample} tokens an "
        f"update, {arguments.updates:,} updates planned, lr {arguments.lr:g}, seed "
        f"{arguments.seed}, {device}."
    )


def training_of(arguments: argparse.Namespace) -> Training:
    """One run for each encoding, under its name."""
    own = {name: ["--position-encoding", name] for name in arguments.encodings}
    shared = {key: value for key, value in vars(arguments).items() if key in Training._fields}
    return Training(runs=own, **shared)


def main(argv: list[str] | None = None) -> None:
    """See the module's text."""
    arguments = parse(argv)
    training = training_of(arguments)

    def write() -> None:
        report(arguments.out, arguments.encodings, describe(arguments))

    if arguments.report:
        keep_settings(training)
        write()
    else:
        with locked(arguments.out) as lock:
            keep_settings(training)
            run_rounds(training, lock, write)
    print((arguments.out / "comparison.md").read_text())


if __name__ == "__main__":
    script.run(main)
