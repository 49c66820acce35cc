"""Continue training at a longer length: how fast do continued positions improve there?

    python -m examples.study.length_tuning DATA_BIN --models NAME=CHECKPOINT... --out DIRECTORY

Each CHECKPOINT is a masked model of length.py that was trained at --trained tokens. Its training
continues at --longest tokens, with the same text, order and schedule:

    toeplitz        with --extend-positions toeplitz
    hierarchical    with --extend-positions hierarchical
    from scratch    an untrained model

After an interruption the same command continues. DIRECTORY gets WAY/NAME/log.txt, results.json and
report.md.
"""

import argparse
from pathlib import Path

from examples.glue.sweep import named_checkpoints
from examples.shared import script
from examples.shared.markdown import spread, table
from examples.shared.results import missing, read_results, rows, write_report
from examples.shared.runner import Run, arguments, fingerprint, runner
from examples.study.length_measures import KINDS
from examples.study.training import Recipe, check_files, losses_of, training_run

#: Flags of each way.
WAYS: dict[str, tuple[str, ...]] = {
    "toeplitz": ("--extend-positions", "toeplitz", "--trained-positions"),
    "hierarchical": ("--extend-positions", "hierarchical"),
    "from scratch": (),
}
#: Validations of a training; the report has the losses after these tenths of it.
VALIDATIONS, TENTHS = 10, (1, 2, 3, 5, 10)


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; arguments after `--` are for fairseq-train."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("data", type=Path, help="folder of the binarised text")
    add("--models", nargs="+", required=True, metavar="NAME=CHECKPOINT", help="pre-trained models")
    add("--encoding", default="tupe_r", help="encoding of all models (default: tupe_r)")
    add("--trained", type=int, default=32, help="tokens in pre-training (default: 32)")
    add("--longest", type=int, default=512, help="tokens in this training (default: 512)")
    add("--updates", type=int, default=1000, help="updates of 2,048 tokens each (default: 1000)")
    add("--lr", type=float, default=1e-3, help="highest learning rate (default: 1e-3)")
    args = arguments(parser, argv, "examples.study.length_tuning")
    args.models = named_checkpoints(args.models)
    check_files(*args.models.values())
    return args


def run_of(args: argparse.Namespace, way: str, name: str, seed: int) -> Run:
    """The run that trains a model in one way."""
    checkpoint = args.models[name].absolute()
    flags = [*WAYS[way], *([str(args.trained)] if way == "toeplitz" else [])]
    if way != "from scratch":
        flags += ["--finetune-from-model", str(checkpoint)]
    recipe = Recipe(
        arch=KINDS["masked"].arch,
        updates=args.updates,
        validations=VALIDATIONS,
        tokens_per_sample=args.longest,
        batch_size=max(1, 2048 // args.longest),
        lr=args.lr,
        flags=["--max-valid-steps", "50", "--max-positions", str(args.longest), *flags],
    )
    settings = {"model": name, "updates": args.updates, "made of": fingerprint(checkpoint)}
    return training_run(args, f"{way}/{name}", recipe, args.encoding, seed, part=way, **settings)


def report(out: Path) -> None:
    """Write the report of the results so far."""
    results = read_results(out)
    plan = results["plan"]
    updates = [plan["updates"] * tenth // VALIDATIONS for tenth in TENTHS]
    lines = []
    for way in WAYS:
        found = [losses_of(row) for row in rows(results, part=way)]
        cells = (spread((losses[update] for losses in found), "{:.3f}") for update in updates)
        lines += [[way, len(found), *cells]] if found else []
    absent = (f"{each['part']} ({each['model']})" for each in missing(results))
    text = [
        f"# {plan['encoding']}, training continued at {plan['longest']:,} tokens",
        "",
        f"Trained at {plan['trained']} tokens. Loss in bits per predicted token of held-out text "
        f"at {plan['longest']:,} tokens, after updates of 2,048 tokens: median and range over "
        f"models. All have one schedule: learning rate {plan['lr']:g} after 5 % warm-up, then "
        f"linearly to 0. Planned and not run: {', '.join(absent) or 'nothing'}.",
        "",
        *table(["way", "models", *(f"{update:,} updates" for update in updates)], lines),
        "",
    ]
    write_report(out, results, text)


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    args = parse(argv)
    plan = {key: getattr(args, key) for key in ("encoding", "trained", "longest", "updates", "lr")}
    models = list(enumerate(args.models, 1))
    runs = [run_of(args, way, name, seed) for seed, name in models for way in WAYS]
    with runner(args, plan, report) as execute:
        execute(runs)


if __name__ == "__main__":
    script.run(main)
