"""Pre-training of several models in rounds: same data in the same order, same schedule.

Shared by compare_encodings.py and study.py. In each round every model is trained for a share of
its updates, in a process of its own: load changes of the machine affect all models equally, and an
interrupted comparison has results for all. The next call continues.
"""

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
    """What all runs share, and the flags of each.

    Attributes:
        data: binarised masked-LM data.
        out: directory of the results.
        runs: own flags of each run, by its name, which is a folder below `out`.
        updates: of each run.
        validations: in each round.
        workers: runs trained at the same time.
        lr: highest learning rate.
        seed: default of all runs.
        flags: further flags for fairseq-train.
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
    """Flags of all runs in all rounds."""
    share = training.updates // training.rounds
    flags: list[Any] = [
        *("--user-dir", PLUGIN, "--arch", training.arch, "--seed", training.seed),
        *("--task", "masked_lm", "--criterion", "masked_lm"),
        # Blocks that ignore line ends: no text is dropped, and there is no padding.
        *("--sample-break-mode", "none", "--tokens-per-sample", training.tokens_per_sample),
        *("--batch-size", training.batch_size, "--required-batch-size-multiple", 1),
        # The text is seen about once, so there is no overfitting.
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
    """Train a run up to an update, from its newest checkpoint; append to its log.

    Args:
        training: the runs.
        name: of the run.
        until: update.
        lock: file descriptor that the process keeps open.

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
        # A process that has completed its training may still crash while it exits.
        if updates_done(out) < until:
            raise


def keep_settings(training: Training) -> None:
    """Write settings.json, or raise a UsageError if it holds other settings."""
    settings = {"data": str(training.data.resolve()), "flags": fixed_flags(training)}
    settings["flags"].remove(str(PLUGIN))
    keep(training.out, settings)


def run_rounds(training: Training, lock: int, report: Callable[[], None]) -> None:
    """Train in rounds, and call `report` after each.

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
