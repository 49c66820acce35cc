"""Translate Multi30k, or text of your own: prepare, train, generate, score.

    python -m examples.translation.run SOURCE --out DIRECTORY --encodings tupe_r
    python -m examples.translation.run SOURCE --out DIRECTORY --seeds 1,2,3

SOURCE holds the parallel text (see prepare.py); the encoding `stock` is fairseq's own
`transformer` of the same size. All models of a seed are trained before those of the next. After an
interruption the same command continues. DIRECTORY gets

    text/, pieces/, data/     see prepare.py
    SIZE/ENCODING.SEED/       checkpoints, log.txt, generate-test.txt, test.hyp.de, and the
                              dictionaries and vocabulary that `from_pretrained` needs
    results.json, report.md   BLEU, chrF, and speed relative to `stock` (scores.py)
"""

import argparse
import shutil
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch

from examples.shared import script
from examples.shared.logs import read_log
from examples.shared.own import user_dir
from examples.shared.results import fingerprint
from examples.shared.runner import Run, arguments, runner
from examples.translation.prepare import LANGUAGES, TOKENIZER, pair
from examples.translation.scores import BASELINE, hypotheses, references, report, score, speed
from tupe_fairseq import UsageError
from tupe_fairseq.base.files import replacing
from tupe_fairseq.position import POSITION_ENCODINGS

TABLE = (BASELINE, "sinusoidal", "learned", "t5", "shaw", "rope", "tupe_a", "tupe_r")
#: Size -> fairseq's architecture and flags, ours, default of --updates, flags for training.
SIZES: dict[str, dict[str, Any]] = {
    # The dimensions of `tupe_transformer_tiny`.
    "tiny": {
        "stock": (
            *("transformer", "--encoder-layers", 4, "--decoder-layers", 4),
            *("--encoder-embed-dim", 128, "--encoder-ffn-embed-dim", 256),
            *("--encoder-attention-heads", 4, "--decoder-attention-heads", 4),
        ),
        "ours": "tupe_transformer_tiny",
        "updates": 1600,
        "training": ("--lr", 2e-3, "--dropout", 0.1, "--max-tokens", 2048),
    },
    "iwslt": {
        "stock": ("transformer_iwslt_de_en",),
        "ours": "tupe_transformer_iwslt_de_en",
        "updates": 8000,
        "training": ("--lr", 5e-4, "--dropout", 0.3, "--max-tokens", 8192),
    },
}
VALIDATIONS = 4


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; arguments after `--` are for fairseq-train."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("source", type=Path, help="folder of the parallel text")
    add("--encodings", default=",".join(TABLE), help="default: %(default)s")
    add("--seeds", default="1", help="seeds, separated by commas (default: 1)")
    add("--size", choices=SIZES, default="tiny")
    add("--updates", type=int, help="updates of each model (default: by size)")
    add("--vocabulary", type=int, default=6000, help="number of pieces, for both languages")
    add("--languages", default=LANGUAGES, help="source and target (default: %(default)s)")
    args = arguments(parser, argv, "examples.translation.run")
    args.source_language, args.target_language = pair(args.languages)
    args.updates = args.updates or SIZES[args.size]["updates"]
    args.encodings = list(dict.fromkeys(args.encodings.split(",")))
    for name in args.encodings:
        if name != BASELINE:
            POSITION_ENCODINGS[name]
    try:
        args.seeds = list(dict.fromkeys(map(int, args.seeds.split(","))))
    except ValueError as error:
        raise UsageError(f"--seeds is {args.seeds!r}, but must be like 1,2,3.") from error
    if args.updates < VALIDATIONS:
        raise UsageError(f"--updates must be at least {VALIDATIONS}, but is {args.updates}.")
    return args


def language_flags(args: argparse.Namespace) -> list[str]:
    """Of fairseq, for source and target."""
    return ["--source-lang", args.source_language, "--target-lang", args.target_language]


def fixed_flags(arguments: argparse.Namespace) -> list[str]:
    """Flags of the training of all models."""
    every = arguments.updates // VALIDATIONS
    flags: list[Any] = [
        *("--task", "translation", *language_flags(arguments)),
        *("--share-all-embeddings", "--max-source-positions", 256),
        *("--max-target-positions", 256, "--skip-invalid-size-inputs-valid-test"),
        *("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", 0.1),
        *("--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--clip-norm", 1.0),
        *("--weight-decay", 1e-4, "--lr-scheduler", "polynomial_decay"),
        *("--warmup-updates", arguments.updates // 10),
        *("--total-num-update", arguments.updates, "--max-update", arguments.updates),
        *SIZES[arguments.size]["training"],
        *("--eval-bleu", "--eval-bleu-args", '{"beam": 1, "max_len_a": 1.2, "max_len_b": 10}'),
        *("--eval-bleu-remove-bpe", "sentencepiece", "--maximize-best-checkpoint-metric"),
        *("--best-checkpoint-metric", "bleu", "--validate-interval-updates", every),
        *("--save-interval-updates", every, "--keep-interval-updates", 1),
        *("--no-epoch-checkpoints", "--validate-interval", 10**6, "--save-interval", 10**6),
        *("--num-workers", 0, "--required-batch-size-multiple", 1),
        *("--log-format", "json", "--log-interval", max(1, every // 4)),
    ]
    flags += [] if torch.cuda.is_available() else ["--cpu"]
    return list(map(str, flags))


def train_command(args: argparse.Namespace, name: str, seed: int, out: Path) -> list[object]:
    """Train a model."""
    size = SIZES[args.size]
    command = [sys.executable, "-m", "examples.shared.timed", "train"]
    command += [args.out.absolute() / "data", *fixed_flags(args)]
    if name == BASELINE:
        command += ["--arch", *size["stock"]]
    else:
        command += ["--user-dir", user_dir(), "--arch", size["ours"]]
        command += ["--position-encoding", name]
    # Of two equal flags, the last takes effect.
    return [*command, "--seed", seed, "--save-dir", out, *args.flags]


def generate_command(args: argparse.Namespace, out: Path) -> list[object]:
    """Translate the test set with the best checkpoint."""
    command = [sys.executable, "-m", "examples.shared.timed", "generate"]
    command += [args.out.absolute() / "data", *([] if torch.cuda.is_available() else ["--cpu"])]
    command += ["--beam", 5, "--max-len-a", 1.2, "--max-len-b", 10, "--batch-size", 64]
    command += ["--task", "timed_translation", "--path", out / "checkpoint_best.pt"]
    command += ["--user-dir", user_dir(), "--results-path", out]
    command += language_flags(args)
    return [*command, "--post-process", "sentencepiece", "--required-batch-size-multiple", 1]


def evaluate(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Score the translations, and copy the files that the model needs."""
    root = args.out.absolute()
    target = args.target_language
    found = hypotheses((folder / "generate-test.txt").read_text(encoding="utf-8"))
    with replacing(folder / f"test.hyp.{target}") as path:
        path.write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
    log = read_log(folder / "log.txt")
    sizes = [entry["wpb"] for kind, entry in log if kind == "train_inner"]
    clocks = [entry for kind, entry in log if kind == "clock"]
    for name in (f"dict.{language}.txt" for language in (args.source_language, target)):
        shutil.copy(root / "data" / name, folder)
    shutil.copy(root / "pieces" / TOKENIZER, folder)
    return {
        **score(found, references(root / "text" / f"test.{target}")),
        "training": speed(clocks, "updates", statistics.mean(sizes) if sizes else 1.0),
        "generation": speed(clocks, "tokens"),
    }


def prepare_run(args: argparse.Namespace) -> Run:
    """Text -> data."""
    words = [args.source.absolute(), args.out.absolute(), "--vocabulary", args.vocabulary]
    words += ["--languages", args.languages]
    command = [sys.executable, "-m", "examples.translation.prepare", *words]
    return Run("prepare", {"part": "prepare"}, [command], lambda folder: {})


def model_run(args: argparse.Namespace, name: str, seed: int) -> Run:
    """Train, translate with and score a model."""
    folder = f"{args.size}/{name}.{seed}"
    out = args.out.absolute() / folder
    used = args.out / "data" / f"dict.{args.source_language}.txt"
    settings = {"part": args.size, "encoding": name, "seed": seed, "updates": args.updates}
    commands = [train_command(args, name, seed, out), generate_command(args, out)]
    made = partial(evaluate, args)
    return Run(folder, settings | {"data": fingerprint(used)}, commands, made)


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    args = parse(argv)
    plan = {"flags": {size: [*map(str, SIZES[size]["training"])] for size in SIZES}}
    with runner(args, plan, report) as execute:
        execute([prepare_run(args)], always=True)
        if not execute.failed:
            pairs = ((name, seed) for seed in args.seeds for name in args.encodings)
            execute([model_run(args, name, seed) for name, seed in pairs])


if __name__ == "__main__":
    script.run(main)
