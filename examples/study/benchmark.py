"""Compare position encodings after tuning, past the initial plateau, with several seeds.

    python -m examples.study.benchmark DATA_BIN --out DIRECTORY --workers 2

DATA_BIN is the output of examples/pretraining/prepare.sh. The plan and its reasons are in
benchmark/plan.md, the settings in benchmark_plan.py. The parts:

    baseline   what ends the plateau of `learned`
    plateau    the same with four times as many updates
    rates      the learning rate of each encoding, on a shorter schedule
    final      each encoding at its best rate, three seeds; BLiMP (with --blimp) and longer texts
    larger     the same with fewer encodings and a larger model
    time       short trainings of each encoding in turn, to compare the time of an update

After an interruption the same command continues; `--only 'baseline/*'` runs a part. DIRECTORY gets
PART/ENCODING/SETTING/SEED/ with the model and log.txt of each run, results.json, and the report
(benchmark_report.py). `--scale gpu` is parts 2 to 4 for one GPU; it has not been run.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from examples.shared import script
from examples.shared.frequencies import context_free_loss
from examples.shared.results import read_results
from examples.shared.runner import Run, arguments, runner
from examples.study.benchmark_plan import ENCODINGS, SETTINGS, SIZES, TRIALS, Size
from examples.study.benchmark_report import report
from examples.study.benchmark_results import best_rate, by_rate
from examples.study.encodings import flags_of
from examples.study.training import Recipe, check_data, trained, training_run
from tupe_fairseq import UsageError

#: Executes runs (see runner.py).
Execute = Callable[[Sequence[Run]], None]
#: Held-out blocks of 16 times the trained length.
BLOCKS = 32
#: Tokens of a sequence in all runs.
LENGTHS = (32, 128)
#: How often each encoding is timed, and the updates of each time.
ROUNDS = 5
TIMED = 150


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; arguments after `--` are for fairseq-train."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("data", type=Path, help="folder of the binarised text")
    add("--blimp", type=Path, help="the pairs of BLiMP (see blimp.py); default: leave it out")
    add("--scale", choices=SIZES, default="cpu", help="see benchmark_plan.py (default: cpu)")
    add("--encodings", default=",".join(ENCODINGS), help="default: %(default)s")
    args = arguments(parser, argv, "examples.study.benchmark")
    args.encodings = args.encodings.split(",")
    for name in args.encodings:
        flags_of(name)
    if args.blimp and not args.blimp.exists():
        raise UsageError(f"--blimp is {str(args.blimp)!r}, but there is no such path.")
    return args


def baseline_runs(args: argparse.Namespace) -> list[Run]:
    """Part 1: what ends the plateau of `learned`."""
    return [
        run_of(args, changed(trial.recipe, SETTINGS[name]), encoding, name, seed, own)
        for part, trial in TRIALS.items()
        for encoding, settings in trial.settings.items()
        for name in settings
        for seed in trial.seeds
        for own in [{"part": part, "setting": name}]
    ]


def changed(recipe: Recipe, flags: Sequence[str]) -> Recipe:
    """A recipe with further flags."""
    return recipe._replace(flags=[*recipe.flags, *flags])


def run_of(
    args: argparse.Namespace,
    recipe: Recipe,
    encoding: str,
    name: str,
    seed: int,
    settings: dict[str, Any],
) -> Run:
    """A run in PART/ENCODING/NAME/SEED."""
    folder = f"{settings['part']}/{encoding}/{name}/{seed}"
    return training_run(args, folder, recipe, encoding, seed, **settings)


def rate_run(args: argparse.Namespace, size: Size, encoding: str, rate: float) -> Run:
    """A run of part 2, on a shorter schedule."""
    own = {"part": f"rates, {size.name}", "lr": rate}
    return run_of(args, size.shorter._replace(lr=rate), encoding, f"{rate:g}", 1, own)


def tune(args: argparse.Namespace, execute: Execute, size: Size) -> dict[str, float]:
    """Train each encoding with rates a factor of two apart, until the best is inside of the range.

    Returns:
        The best rate by encoding, without encodings whose runs are not complete.
    """
    # Encodings of one's own are in no plan, so they take part at each size.
    chosen = [name for name in args.encodings if name in size.encodings or name not in ENCODINGS]
    rates = {name: set(size.rates) for name in chosen}
    best: dict[str, float] = {}
    while rates:
        tried = [(name, rate) for name, own in rates.items() for rate in sorted(own)]
        execute([rate_run(args, size, *each) for each in tried])
        found = by_rate(read_results(args.out), size.name)
        for name, own in [*rates.items()]:
            losses = found.get(name, {})
            if not own <= losses.keys():
                del rates[name]
            elif min(own) < (lowest := best_rate(losses)) < max(own):
                best[name] = lowest
                del rates[name]
            else:
                own.add(lowest / 2 if lowest == min(own) else lowest * 2)
    return best


def final_runs(args: argparse.Namespace, size: Size, best: dict[str, float]) -> list[Run]:
    """Parts 3 and 4: train at the best rate, and measure BLiMP and longer texts."""
    found = []
    for seed in size.seeds:
        for encoding, rate in best.items():
            own = {"part": f"final, {size.name}", "lr": rate}
            recipe = size.recipe._replace(lr=rate)
            run = run_of(args, recipe, encoding, f"{rate:g}", seed, own)
            folder = args.out.absolute() / run.name
            tokens = recipe.batch_size * recipe.tokens_per_sample
            length = [sys.executable, "-m", "examples.study.longer_texts", encoding]
            length += [args.data.absolute(), folder, recipe.tokens_per_sample, BLOCKS]
            after = [length]
            if args.blimp:
                words = ["-m", "examples.study.blimp", folder, "--data", args.blimp.absolute()]
                words += ["--dictionary", args.data.absolute()]
                after.append([sys.executable, *words, "--checkpoint-file", "checkpoint_last.pt"])
            commands = [*run.commands, *after]
            read = partial(measured, args.data, tokens)
            found.append(run._replace(commands=commands, result=read))
    return found


def time_runs(args: argparse.Namespace, size: Size, best: dict[str, float]) -> list[Run]:
    """Short trainings of all encodings in turn: machines differ, and change with time."""
    recipe = size.recipe._replace(updates=TIMED, validations=1)
    # Without a buffer: fairseq's thread that fills it can abort a process that ends so early.
    recipe = changed(recipe, ("--max-valid-steps", "1", "--data-buffer-size", "0"))
    own = {"part": f"time, {size.name}"}
    return [
        run_of(args, recipe, encoding, "time", seed, own)
        for seed in range(1, ROUNDS + 1)
        for encoding in best
    ]


def measured(data: Path, tokens: int, folder: Path) -> dict[str, Any]:
    """The result of the training, the tokens of an update, and what was measured afterwards."""
    found = {**trained(data, folder), "tokens": tokens}
    for key, file in (("longer", "measured.json"), ("blimp", "blimp.json")):
        if (folder / file).exists():
            found[key] = json.loads((folder / file).read_text())
    return found


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    args = parse(argv)
    check_data(args.data)
    sizes = SIZES[args.scale]
    first = baseline_runs(args) if args.scale == "cpu" else []
    plan: dict[str, Any] = {part: trial.recipe._asdict() for part, trial in TRIALS.items()}
    plan["context_free"] = {str(n): context_free_loss(args.data, n) for n in LENGTHS}
    plan |= {size.name: size.recipe._asdict() for size in sizes}
    with runner(args, plan, report) as execute:
        execute(first)
        for size in sizes:
            best = tune(args, execute, size)
            execute(final_runs(args, size, best))
            execute(time_runs(args, size, best))


if __name__ == "__main__":
    script.run(main)
