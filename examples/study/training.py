"""Runs of fairseq-train on the same data in the same order, with the same schedule."""

import argparse
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

from examples.shared.logs import read_log
from examples.shared.own import user_dir
from examples.shared.results import fingerprint
from examples.shared.runner import Run
from examples.study.encodings import flags_of
from tupe_fairseq import UsageError
from tupe_fairseq.fairseq.checkpoints.reading import read_checkpoint

LAST = "checkpoint_last.pt"


class Recipe(NamedTuple):
    """How all models of a study are trained.

    Attributes:
        arch: fairseq's name.
        updates: of each model.
        validations: at equal distances; a checkpoint is written after each.
        tokens_per_sample: length of a sequence.
        batch_size: sequences of an update.
        lr: the highest learning rate.
        flags: further ones for fairseq-train; of two equal flags, the last counts.
    """

    arch: str
    updates: int
    validations: int
    tokens_per_sample: int
    batch_size: int
    lr: float
    flags: Sequence[str] = ()


def training_run(
    args: argparse.Namespace, name: str, recipe: Recipe, encoding: str, seed: int, **settings: Any
) -> Run:
    """A run that trains a model.

    Args:
        args: what `runner.arguments` returns, with the binarised `data`.
        name: of the run.
        recipe: of the study.
        encoding: perhaps with options (see encodings.py).
        seed: of the model.
        **settings: further ones, for the report.
    """
    check_data(args.data)
    folder = args.out.absolute() / name
    own = [*flags_of(encoding), "--seed", str(seed), "--save-dir", str(folder), *args.flags]
    command = [sys.executable, "-m", "examples.shared.timed", "train", args.data.absolute()]
    used = fingerprint(*(args.data / file for file in ("dict.txt", "train.bin", "valid.bin")))
    settings = {**settings, "encoding": encoding, "seed": seed, "data": used}
    command += [*fixed_flags(recipe), *own]
    return Run(name, settings, [command], partial(trained, args.data))


def check_data(data: Path) -> None:
    """Raise a UsageError if the folder of binarised text has no dictionary."""
    if not (data / "dict.txt").is_file():
        raise UsageError(f"DATA_BIN is {str(data)!r}, but holds no dict.txt.")


def fixed_flags(recipe: Recipe) -> list[str]:
    """Flags of all models."""
    share = recipe.updates // recipe.validations
    flags: list[Any] = [
        *("--user-dir", user_dir(), "--arch", recipe.arch),
        *("--task", "masked_lm", "--criterion", "masked_lm"),
        # Blocks that ignore line ends: no text is dropped, and there is no padding.
        *("--sample-break-mode", "none", "--tokens-per-sample", recipe.tokens_per_sample),
        *("--batch-size", recipe.batch_size, "--required-batch-size-multiple", 1),
        # The text is seen about once, so there is no overfitting.
        *("--dropout", 0, "--attention-dropout", 0),
        *("--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--adam-eps", 1e-6),
        *("--clip-norm", 1.0, "--weight-decay", 0.01, "--lr", recipe.lr),
        *("--lr-scheduler", "polynomial_decay", "--warmup-updates", recipe.updates // 20),
        *("--total-num-update", recipe.updates, "--max-update", recipe.updates),
        *("--validate-interval-updates", share),
        *("--save-interval-updates", share, "--keep-interval-updates", 1),
        *("--no-epoch-checkpoints", "--num-workers", 0),
        *("--log-format", "json", "--log-interval", max(1, share // 10)),
    ]
    flags += [] if torch.cuda.is_available() else ["--cpu"]
    return [*map(str, flags), *recipe.flags]


def trained(data: Path, folder: Path) -> dict[str, Any]:
    """Parameters, loss by update, and seconds per update of a trained model.

    The folder gets the files that `from_pretrained` needs beside the checkpoint.
    """
    losses = {}
    seconds = []
    for kind, entry in read_log(folder / "log.txt"):
        if kind == "valid":
            losses[int(entry["valid_num_updates"])] = entry["valid_loss"]
        elif kind == "clock" and entry["updates"] > 0:
            seconds.append(entry["seconds"] / entry["updates"])
    if not losses:
        raise UsageError("the log has no validation")
    model = read_checkpoint(folder / LAST)["model"]
    # The LM head shares its weight with the word embeddings.
    sizes = (v.numel() for key, v in model.items() if key != "encoder.lm_head.weight")
    for file in (data / "dict.txt", data / "sentencepiece.bpe.model"):
        if file.exists():
            shutil.copy(file, folder)
    return {
        "parameters": sum(sizes),
        "losses": losses,
        "seconds": median(seconds) if seconds else None,
    }


def losses_of(row: dict[str, Any]) -> dict[int, float]:
    """Loss by update of a result of `trained`, which JSON writes with strings as keys."""
    return {int(update): loss for update, loss in row["losses"].items()}


def final_loss(row: dict[str, Any]) -> float:
    """Validation loss after the last update."""
    losses = losses_of(row)
    return losses[max(losses)]
