"""Pre-train every position encoding on the same data in the same order, and compare them.

    python -m examples.study.compare_encodings DATA_BIN --out DIRECTORY

DATA_BIN is the output of fairseq-preprocess. After an interruption the same command continues.
DIRECTORY gets ENCODING/SEED/ with checkpoints and log.txt of each model, results.json, and the
report (comparison.py): report.md and losses.png, which needs matplotlib (the extra `viz`).
"""

import argparse
from pathlib import Path

from examples.shared import script
from examples.shared.runner import arguments, runner
from examples.study.comparison import report
from examples.study.training import Recipe, training_run
from tupe_fairseq.position import POSITION_ENCODINGS

FOR_ENCODERS = [name for name, cls in POSITION_ENCODINGS.items() if not cls.causal_only]


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; arguments after `--` are for fairseq-train."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("data", type=Path, help="folder of the binarised text")
    add("--encodings", default=",".join(FOR_ENCODERS), help="default: all that encoders take")
    add("--updates", type=int, default=9600, help="updates of each model")
    add("--validations", type=int, default=8, help="validations of each model")
    add("--arch", default="tupe_roberta_tiny")
    add("--tokens-per-sample", type=int, default=32, help="tokens in a sequence")
    add("--batch-size", type=int, default=32, help="sequences in a batch")
    add("--lr", type=float, default=1e-3)
    add("--seed", type=int, default=1)
    return arguments(parser, argv, "examples.study.compare_encodings")


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    args = parse(argv)
    recipe = Recipe(**{key: vars(args)[key] for key in Recipe._fields if key != "flags"})
    runs = [
        training_run(args, f"{name}/{args.seed}", recipe, name, args.seed, part="pre-training")
        for name in args.encodings.split(",")
    ]
    with runner(args, recipe._asdict(), report) as execute:
        execute(runs)


if __name__ == "__main__":
    script.run(main)
