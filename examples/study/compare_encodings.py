"""Pre-train every position encoding on the same data in the same order, and compare them.

    python -m examples.study.compare_encodings DATA_BIN --out DIRECTORY

DATA_BIN is the output of fairseq-preprocess. Training is in rounds, in each of which every
encoding is trained for a share of the updates: load changes of the machine affect all runs
equally, and an interrupted comparison has results for all. The same command continues. With
--report it only writes the table and the figure, also while another call trains. DIRECTORY gets

    NAME/                 checkpoints and log.txt of an encoding
    settings.json         settings of all runs, which must not change between calls
    comparison.json       the numbers behind the table and the figure
    comparison.md         parameters, validation loss, speed relative to `learned`
    comparison.png        validation loss against updates (matplotlib, the extra `viz`)
"""

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

FOR_ENCODERS = [name for name, cls in POSITION_ENCODINGS.items() if not cls.causal_only]


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; arguments after `--` are for fairseq-train.

    Raises:
        UsageError: an unknown encoding, no data, or rounds that do not divide the updates.
    """
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("data", type=Path, help="binarised masked-LM data")
    add("--out", type=Path, required=True, help="directory of the results")
    add("--encodings", default=",".join(FOR_ENCODERS), help="default: all that encoders take")
    add("--updates", type=int, default=9600, help="per encoding")
    add("--rounds", type=int, default=4, help="in which they are trained")
    add("--validations", type=int, default=2, help="in each round")
    add("--workers", type=int, default=1, help="encodings trained at the same time")
    add("--arch", default="tupe_roberta_tiny")
    add("--tokens-per-sample", type=int, default=32, help="length of a sequence")
    add("--batch-size", type=int, default=32, help="sequences")
    add("--lr", type=float, default=1e-3)
    add("--seed", type=int, default=1)
    add("--report", action="store_true", help="only write the report")
    args = parse_with_flags(parser, argv)
    args.encodings = args.encodings.split(",")
    for name in args.encodings:
        POSITION_ENCODINGS[name]
    if not (args.data / "dict.txt").is_file():
        raise UsageError(f"DATA_BIN is {str(args.data)!r}, but holds no dict.txt.")
    if min(args.rounds, args.validations, args.workers) < 1:
        raise UsageError("--rounds, --validations and --workers must be at least 1.")
    parts = args.rounds * args.validations
    if args.updates < 1 or args.updates % parts:
        raise UsageError(
            f"--rounds times --validations must divide --updates {args.updates}, but is {parts}."
        )
    return args


def describe(arguments: argparse.Namespace) -> str:
    """The settings in a sentence."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return (
        f"{arguments.arch}, {arguments.batch_size} × {arguments.tokens_per_sample} tokens per "
        f"update, {arguments.updates:,} updates planned, lr {arguments.lr:g}, seed "
        f"{arguments.seed}, {device}."
    )


def training_of(arguments: argparse.Namespace) -> Training:
    """One run for each encoding, under its name."""
    own = {name: ["--position-encoding", name] for name in arguments.encodings}
    shared = {key: value for key, value in vars(arguments).items() if key in Training._fields}
    return Training(runs=own, **shared)


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
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
