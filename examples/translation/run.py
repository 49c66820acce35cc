"""Translate Multi30k from English to German: prepare, train, generate, score.

    python -m examples.translation.run SOURCE --out DIRECTORY --encodings tupe_r
    python -m examples.translation.run SOURCE --out DIRECTORY --seeds 1,2,3

SOURCE holds the parallel text (see prepare.py); the encoding `stock` is fairseq's own
`transformer` of the same size. All models of a seed are trained before those of the next;
--workers 2 trains two at a time, with one thread each. After an interruption the same command
continues; with --report it only writes the table. DIRECTORY gets

    text/, pieces/, data/     see prepare.py
    SIZE/ENCODING.SEED/       checkpoints, log.txt, generate.txt, test.hyp.de, result.json, and the
                              dictionaries and vocabulary that `from_pretrained` needs
    SIZE/settings.json        settings of all models, which must not change between calls
    SIZE/results.md           BLEU, chrF, and speed relative to `stock`
"""

import argparse
import json
import shutil
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from examples.shared import script
from examples.shared.jobs import PLUGIN, keep, parse_with_flags, read_log, run_module, side_by_side
from examples.shared.locks import locked
from examples.translation.prepare import LANGUAGES, TOKENIZER, prepare
from examples.translation.scores import (
    BASELINE,
    hypotheses,
    references,
    score,
    speed,
    table,
)
from tupe_fairseq import UsageError
from tupe_fairseq.checkpoints.whole import newest_whole_checkpoint
from tupe_fairseq.files import replacing
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
    add("source", type=Path, help="parallel text")
    add("--out", type=Path, required=True, help="directory of the results")
    add("--encodings", default=",".join(TABLE), help="default: %(default)s")
    add("--seeds", default="1", help="default: 1")
    add("--size", choices=SIZES, default="tiny")
    add("--updates", type=int, help="of each model (default: by size)")
    add("--workers", type=int, default=1, help="models trained at the same time")
    add("--vocabulary", type=int, default=6000, help="number of pieces, for both languages")
    add("--report", action="store_true", help="only write the table")
    args = parse_with_flags(parser, argv)
    args.updates = args.updates or SIZES[args.size]["updates"]
    args.encodings = list(dict.fromkeys(args.encodings.split(",")))
    for name in args.encodings:
        if name != BASELINE:
            POSITION_ENCODINGS[name]
    try:
        args.seeds = list(dict.fromkeys(map(int, args.seeds.split(","))))
    except ValueError as error:
        raise UsageError(f"--seeds is {args.seeds!r}, but must be like 1,2,3.") from error
    if args.workers < 1:
        raise UsageError(f"--workers must be at least 1, but is {args.workers}.")
    if args.updates < VALIDATIONS:
        raise UsageError(f"--updates must be at least {VALIDATIONS}, but is {args.updates}.")
    return args


def fixed_flags(arguments: argparse.Namespace) -> list[str]:
    """Flags of the training of all models."""
    every = arguments.updates // VALIDATIONS
    flags: list[Any] = [
        *("--task", "translation", "--source-lang", LANGUAGES[0], "--target-lang", LANGUAGES[1]),
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


def train(arguments: argparse.Namespace, name: str, seed: int, out: Path, lock: int) -> None:
    """Train a model, from its newest checkpoint."""
    size = SIZES[arguments.size]
    command = ["examples.study.timed_train", arguments.out / "data", *fixed_flags(arguments)]
    if name == BASELINE:
        command += ["--arch", *size["stock"]]
    else:
        command += ["--user-dir", PLUGIN, "--arch", size["ours"], "--position-encoding", name]
    # Of two equal flags, the last takes effect.
    command += ["--seed", seed, "--save-dir", out, *arguments.flags]
    if (checkpoint := newest_whole_checkpoint(out)) is not None:
        command += ["--restore-file", checkpoint]
    run_module(command, out / "log.txt", f"training {name}", arguments.workers, lock)


def generate(arguments: argparse.Namespace, name: str, out: Path, lock: int) -> None:
    """Translate the test set with the best checkpoint."""
    device = [] if torch.cuda.is_available() else ["--cpu"]
    search = ("--beam", 5, "--max-len-a", 1.2, "--max-len-b", 10, "--batch-size", 64)
    command = ["examples.translation.timed_generate", arguments.out / "data", *device, *search]
    command += ["--task", "timed_translation", "--path", out / "checkpoint_best.pt"]
    command += ["--user-dir", PLUGIN]
    command += ["--source-lang", LANGUAGES[0], "--target-lang", LANGUAGES[1]]
    command += ["--post-process", "sentencepiece", "--required-batch-size-multiple", 1]
    with replacing(out / "generate.txt") as aside:
        run_module(command, aside, f"translating with {name}", arguments.workers, lock)


def evaluate(arguments: argparse.Namespace, out: Path) -> None:
    """Score the translations, and copy the files that the model needs."""
    generated = (out / "generate.txt").read_text(encoding="utf-8")
    found = hypotheses(generated)
    with replacing(out / "test.hyp.de") as path:
        path.write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
    log = read_log(out / "log.txt")
    sizes = [entry["wpb"] for kind, entry in log if kind == "train_inner"]
    tokens = statistics.mean(sizes) if sizes else 1.0
    result = {
        **score(found, references(arguments.out / "text")),
        "training": speed(log, tokens),
        "generation": speed(read_log(out / "generate.txt")),
    }
    for name in (f"dict.{language}.txt" for language in LANGUAGES):
        shutil.copy(arguments.out / "data" / name, out)
    shutil.copy(arguments.out / "pieces" / TOKENIZER, out)
    with replacing(out / "result.json") as path:
        path.write_text(json.dumps(result, indent=1))


def keep_settings(arguments: argparse.Namespace) -> None:
    """Write settings.json, or raise a UsageError if it holds other settings."""
    flags = [*fixed_flags(arguments), *arguments.flags]
    settings = {"flags": flags, "vocabulary": arguments.vocabulary}
    keep(arguments.out, settings, f"{arguments.size}/settings.json")


def report(arguments: argparse.Namespace) -> str:
    """Write results.md from the results so far, and return it."""
    folder = arguments.out / arguments.size
    results: dict[str, dict[int, Any]] = {name: {} for name in arguments.encodings}
    for name in arguments.encodings:
        for seed in arguments.seeds:
            path = folder / f"{name}.{seed}" / "result.json"
            if path.exists():
                results[name][seed] = json.loads(path.read_text())
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    flags = " ".join(map(str, SIZES[arguments.size]["training"]))
    more = f", {' '.join(arguments.flags)}" if arguments.flags else ""
    settings = f"Size {arguments.size}, {arguments.updates:,} updates, {flags}{more}, {device}."
    found = table(results, settings)
    with replacing(folder / "results.md") as path:
        path.write_text(found)
    return found


def make(arguments: argparse.Namespace, name: str, seed: int, lock: int) -> None:
    """The remaining steps of a model."""
    out = arguments.out / arguments.size / f"{name}.{seed}"
    out.mkdir(parents=True, exist_ok=True)
    if (out / "result.json").exists():
        return
    if not (out / "generate.txt").exists():
        train(arguments, name, seed, out, lock)
        generate(arguments, name, out, lock)
    evaluate(arguments, out)


def make_all(arguments: argparse.Namespace, lock: int) -> None:
    """Prepare the data, and train and score all models."""
    prepare(arguments.source, arguments.out, arguments.vocabulary)
    models = {
        f"{name}, seed {seed}": partial(make, arguments, name, seed, lock)
        for seed in arguments.seeds
        for name in arguments.encodings
    }
    with tqdm(total=len(models), unit="model") as progress:
        side_by_side(models, arguments.workers, progress, partial(report, arguments))


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    arguments = parse(argv)
    if not arguments.report:
        with locked(arguments.out) as lock:
            keep_settings(arguments)
            make_all(arguments, lock)
    print(report(arguments))


if __name__ == "__main__":
    script.run(main)
