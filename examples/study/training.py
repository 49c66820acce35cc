"""Training runs that take turns: same data in the same order, same seed, same schedule.

What compare_encodings.py and study.py share. Each round trains every run a share of its updates,
in a process of its own, so that the machine's moods meet all alike and what is stopped has
compared something. Called again, it goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tqdm import tqdm

from examples.shared.jobs import PLUGIN, keep, run_module, side_by_side
from examples.study.comparison import updates_done
from tupe_fairseq import UsageError
from tupe_fairseq.checkpoints.whole import newest_whole_checkpoint


class Training(NamedTuple):
    """What all runs share, and in what they differ.

    Attributes:
        data: binarised masked-LM data.
        out: directory of the results.
        runs: name of each, a folder below `out`, and the flags that are its own.
        updates: of each run.
        rounds: turns in which they are trained.
        validations: in each round.
        workers: runs trained side by side.
        arch: of the model.
        tokens_per_sample: length of a sequence.
        batch_size: sequences.
        lr: highest learning rate.
        seed: of all; a run's own flags may have another.
        flags: further ones for fairseq-train.
    """

    data: Path
    out: Path
    runs: dict[str, list[str]]
    updates: int
    rounds: int
    validations: int
    workers: int
    arch: str
    tokens_per_sample: int
    batch_size: int
    lr: float
    seed: int
    flags: list[str]


def fixed_flags(training: Training) -> list[str]:
    """What all runs and all rounds share."""
    share = training.updates // training.rounds
    flags: list[Any] = [
        *("--user-dir", PLUGIN, "--arch", training.arch, "--seed", training.seed),
        *("--task", "masked_lm", "--criterion", "masked_lm"),
        # Blocks over the ends of lines: no text is lost, and none is padding.
        *("--sample-break-mode", "none", "--tokens-per-sample", training.tokens_per_sample),
        *("--batch-size", training.batch_size, "--required-batch-size-multiple", 1),
        # Text that is seen about once cannot be overfitted.
        *("--dropout", 0, "--attention-dropout", 0),
        *("--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--adam-eps", 1e-6),
        *("--clip-norm", 1.0, "--weight-decay", 0.01, "--lr", training.lr),
        *("--lr-scheduler", "polynomial_decay", "--warmup-updates", training.updates // 20),
        *("--total-num-update", training.updates),
        *("--validate-interval-updates", share // training.validations),
        *("--save-interval-updates", share, "--keep-interval-updates", 1),
        *("--no-epoch-checkpoints", "--num-workers", 0),
        *("--log-format", "json", "--log-interval", max(1, share // 10)),
    ]
    flags += [] if torch.cuda.is_available() else ["--cpu"]
    return [*map(str, flags), *training.flags]


def train(training: Training, name: str, until: int, lock: int) -> None:
    """Train one run up to an update, from its newest checkpoint on; append to its log.

    Args:
        training: what it belongs to.
        name: of the run.
        until: update.
        lock: file descriptor that the process keeps open while it runs.

    Raises:
        UsageError: fairseq-train failed.
    """
    out = training.out / name
    out.mkdir(parents=True, exist_ok=True)
    command = ["examples.study.timed_train", training.data]
    command += [*fixed_flags(training), *training.runs[name]]
    command += ["--save-dir", out, "--max-update", until]
    if (checkpoint := newest_whole_checkpoint(out)) is not None:
        command += ["--restore-file", checkpoint]
    try:
        run_module(command, out / "log.txt", f"training {name}", training.workers, lock)
    except UsageError:
        # A process that has trained to the end may still crash while it shuts down.
        if updates_done(out) < until:
            raise


def keep_settings(training: Training) -> None:
    """Write settings.json, or compare with it: runs go on with what they began with.

    Raises:
        UsageError: the directory holds a run with other settings.
    """
    settings = {"data": str(training.data.resolve()), "flags": fixed_flags(training)}
    settings["flags"].remove(str(PLUGIN))
    keep(training.out, settings)


def run_rounds(training: Training, lock: int, report: Callable[[], None]) -> None:
    """Train in rounds.

    Args:
        training: what to train.
        lock: file descriptor that the processes keep open while they run.
        report: called after each round.

    Raises:
        UsageError: a training failed.
    """
    share = training.updates // training.rounds

    def turn(name: str, until: int) -> None:
        if updates_done(training.out / name) < until:
            train(training, name, until, lock)

    with tqdm(total=len(training.runs) * training.rounds, unit="run") as progress:
        for until in range(share, training.updates + 1, share):
            turns = {f"{n} to update {until}": partial(turn, n, until) for n in training.runs}
            side_by_side(turns, training.workers, progress)
            report()
