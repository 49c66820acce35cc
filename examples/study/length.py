"""Train models on short sequences with many encodings, and measure them on longer ones.

    python -m examples.study.length DATA_BIN --out DIRECTORY --workers 2

DATA_BIN is the output of examples/pretraining/prepare.sh. The parts:

    causal    language models, trained at --length tokens, measured at 1, 2, 4, 8 and 16 times as
              many; without further training, `rope` also with each scaling of its frequencies, and
              some encodings with a window
    masked    the same with masked models and --masked-length

An encoding may have options: `rope+randomize_positions=512`. All are trained with the first of
--seeds, masked models and some causal ones with all. After an interruption the same command
continues; `--only 'causal/*'` runs a part. DIRECTORY gets PART/ENCODING/SEED/ with the model and
log.txt, results.json, and the report (length_report.py): report.md, causal.png and masked.png,
which need matplotlib (the extra `viz`).
"""

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from examples.shared import script
from examples.shared.runner import Run, arguments, runner
from examples.study.length_measures import FACTORS, KINDS
from examples.study.length_report import report
from examples.study.training import Recipe, trained, training_run
from tupe_fairseq import UsageError

#: Default encodings of each part. Four occur twice, because sequences shorter than their defaults
#: leave parts untrained: T5's last bucket begins at 128, FIRE does not rescale texts below 512
#: tokens, CoPE has vectors for 64 positions, the bank profiles up to distance 1,024. The last one
#: is p-RoPE.
ENCODINGS = {
    "causal": "none,sinusoidal,learned,rope,xpos,alibi,t5,tupe_r,kerple_log,fire,sandwich,fox,"
    "cable,cope,pope,relative_bank,urpe,t5+max_distance=32,fire+fire_threshold=16,"
    "cope+cope_positions=16,relative_bank+bank_extent=64,"
    "rope+rope_fraction=0.75+rope_proportional=true",
    "masked": "learned,tupe_a,tupe_r,rope,alibi,kerple_log,learned+randomize_positions=512,"
    "rope+randomize_positions=512,t5,t5+max_distance=16",
}
#: Causal models that are trained with all seeds.
REPEATED = ("sinusoidal", "learned", "rope", "alibi", "t5")


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; arguments after `--` are for fairseq-train."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("data", type=Path, help="folder of the binarised text")
    for part, names in ENCODINGS.items():
        flag = "--encodings" if part == "causal" else f"--{part}-encodings"
        add(flag, dest=part, default=names, help="default: %(default)s")
    add("--seeds", type=int, nargs="+", default=[1, 2], help="seeds (default: 1 2)")
    add("--length", type=int, default=64, help="tokens of causal models (default: 64)")
    add("--masked-length", type=int, default=32, help="tokens of masked models (default: 32)")
    add("--updates", type=int, default=4800, help="updates of a causal model, 32 sequences each")
    add("--masked-updates", type=int, default=9600, help="updates of a masked model")
    add("--blocks", type=int, default=64, help="held-out text, in sequences of the longest length")
    args = arguments(parser, argv, "examples.study.length")
    for part in ENCODINGS:
        setattr(args, part, list(dict.fromkeys(getattr(args, part).split(","))))
    # A trained table reaches the square of its rows.
    if min(args.length, args.masked_length) < FACTORS[-1]:
        raise UsageError(f"--length and --masked-length must be at least {FACTORS[-1]}.")
    if args.blocks < 1:
        raise UsageError("--blocks must be at least 1.")
    return args


def recipe_of(args: argparse.Namespace, part: str) -> Recipe:
    """How the models of a part are trained."""
    kind, causal = KINDS[part], part == "causal"
    return Recipe(
        arch=kind.arch,
        updates=args.updates if causal else args.masked_updates,
        validations=4,
        tokens_per_sample=args.length if causal else args.masked_length,
        batch_size=32,
        lr=1e-3,
        flags=[*kind.flags, "--max-valid-steps", "50"],
    )


def model_runs(args: argparse.Namespace, part: str) -> list[Run]:
    """The runs that train and measure models, all with the first seed before the others."""
    recipe = recipe_of(args, part)
    first, *others = args.seeds
    pairs = [(name, first) for name in getattr(args, part)]
    again = [name for name in getattr(args, part) if part == "masked" or name in REPEATED]
    pairs += [(name, seed) for seed in others for name in again]
    runs = []
    for encoding, seed in pairs:
        name = f"{part}/{encoding}/{seed}"
        run = training_run(args, name, recipe, encoding, seed, part=part)
        measure = [sys.executable, "-m", "examples.study.length_measures", part, encoding]
        measure += [args.data.absolute(), args.out.absolute() / name]
        measure += [recipe.tokens_per_sample, args.blocks]
        runs.append(
            run._replace(commands=[*run.commands, measure], result=partial(measured, args.data))
        )
    return runs


def measured(data: Path, folder: Path) -> dict[str, Any]:
    """The losses by way of measuring, beside the result of the training."""
    ways = json.loads((folder / "measured.json").read_text())
    return {**trained(data, folder), "measured": ways}


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    args = parse(argv)
    runs = [*model_runs(args, "causal"), *model_runs(args, "masked")]
    lengths = {"causal": args.length, "masked": args.masked_length}
    with runner(args, {"trained": lengths}, report) as execute:
        execute(runs)


if __name__ == "__main__":
    script.run(main)
