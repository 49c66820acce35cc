"""Compare position encodings after tuning, past the initial plateau, with several seeds.

    python -m examples.study.benchmark DATA_BIN --out DIRECTORY --workers 2

DATA_BIN is the output of examples/pretraining/prepare.sh. The plan and its reasons are in
benchmark/README.md. After an interruption the same command continues; `--only 'baseline/*'` runs a
part. DIRECTORY gets PART/ENCODING/SETTING/SEED/ with the model and log.txt of each run,
results.json, and the report (benchmark_report.py).
"""

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

from fairseq.data import Dictionary

from examples.shared import script
from examples.shared.runner import Run, arguments, runner
from examples.study.benchmark_report import report
from examples.study.figures import read_tokens, unigram_loss
from examples.study.training import Recipe, training_run


class Setting(NamedTuple):
    """A departure from the base.

    Attributes:
        flags: for fairseq-train; of two equal flags, the last counts.
        initial: factors of initial weights (see initial.py).
    """

    flags: tuple[str, ...] = ()
    initial: tuple[str, ...] = ()


def sizes(layers: int = 2, width: int = 128, heads: int = 4) -> tuple[str, ...]:
    """Flags of a model's size."""
    return (
        *("--encoder-layers", str(layers), "--encoder-embed-dim", str(width)),
        *("--encoder-ffn-embed-dim", str(4 * width), "--encoder-attention-heads", str(heads)),
    )


#: One change at a time, for encodings that add positions to words. The initial standard deviation
#: of 0.02 is made for a width of 768. Times 2.45 = √(768 / 128), queries and keys of a width of
#: 128 begin with the same variance.
BASELINE = {
    "base": Setting(),
    "init=2.45": Setting(initial=("matrices=2.45",)),
    "init=6": Setting(initial=("matrices=6",)),
    "lr=2e-3": Setting(("--lr", "2e-3")),
    "lr=4e-3": Setting(("--lr", "4e-3")),
    "lr=5e-4": Setting(("--lr", "5e-4")),
    "positions=5": Setting(initial=("*positions*=5",)),
    "tokens=32": Setting(("--tokens-per-sample", "32", "--batch-size", "64")),
    "batch=4": Setting(("--batch-size", "4")),
    "heads=1": Setting(sizes(heads=1)),
    "heads=16": Setting(sizes(heads=16)),
    "layers=4": Setting(sizes(layers=4)),
    "pre-norm": Setting(("--encoder-normalize-before",)),
    "warmup=600": Setting(("--warmup-updates", "600")),
    "dropout=0.1": Setting(("--dropout", "0.1", "--attention-dropout", "0.1")),
    "width=256": Setting(sizes(width=256)),
    "batch=64": Setting(("--batch-size", "64")),
}
#: The encodings of this part, and the settings of each.
STARVED = {"sinusoidal": ("base", "init=2.45", "lr=2e-3"), "learned": tuple(BASELINE)}

PILOT = Recipe(
    arch="tupe_roberta",
    updates=3000,
    validations=15,
    tokens_per_sample=128,
    batch_size=16,
    lr=1e-3,
    flags=[*sizes(), "--max-valid-steps", "20"],
)


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; arguments after `--` are for fairseq-train."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="binarised text")
    return arguments(parser, argv, "examples.study.benchmark")


def benchmark_run(
    args: argparse.Namespace, part: str, recipe: Recipe, encoding: str, seed: int, setting: str
) -> Run:
    """A run of a setting of BASELINE."""
    changed, name = BASELINE[setting], f"{part}/{encoding}/{setting}/{seed}"
    recipe = recipe._replace(flags=[*recipe.flags, *changed.flags])
    run = training_run(args, name, recipe, encoding, seed, part=part, setting=setting)
    if not changed.initial:
        return run
    (command,) = run.commands
    start, train = args.out.absolute() / name / "initial.pt", command[4:]
    make = [sys.executable, "-m", "examples.study.initial", start, *changed.initial, "--", *train]
    return run._replace(commands=[make, [*command, "--finetune-from-model", start]])


def baseline_runs(args: argparse.Namespace) -> list[Run]:
    """What ends the plateau of `learned`."""
    return [
        benchmark_run(args, "baseline", PILOT, encoding, 1, setting)
        for encoding, settings in STARVED.items()
        for setting in settings
    ]


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    args = parse(argv)
    runs = baseline_runs(args)
    tokens = [read_tokens(args.data / part) for part in ("train", "valid")]
    symbols = len(Dictionary.load(str(args.data / "dict.txt")))
    plan = {"pilot": PILOT._asdict(), "unigram": unigram_loss(*tokens, symbols)}
    with runner(args, plan, report) as execute:
        execute(runs)


if __name__ == "__main__":
    script.run(main)
