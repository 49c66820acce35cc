"""Training runs that take turns: same data in the same order, same seed, same schedule.

What compare_encodings.py and study.py share. Each round trains every run a share of its updates,
in a process of its own, so that the machine's moods meet all alike and what is stopped has
compared something. Called again, it goes on where it stopped.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tqdm import tqdm

from examples.study.comparison import updates_done
from tupe_fairseq import UsageError
from tupe_fairseq.checkpoints.whole import newest_whole_checkpoint
from tupe_fairseq.files import replacing

PLUGIN = Path(__file__).parents[2] / "tupe_fairseq"


def parse_with_flags(
    parser: argparse.ArgumentParser, argv: list[str] | None = None
) -> argparse.Namespace:
    """Arguments; `flags` are those that follow `--`, for fairseq-train."""
    parser.epilog = "What follows -- goes to fairseq-train as it is."
    argv = sys.argv[1:] if argv is None else argv
    own, flags = argv, []
    if "--" in argv:
        own, flags = argv[: argv.index("--")], argv[argv.index("--") + 1 :]
    arguments = parser.parse_args(own)
    arguments.flags = flags
    return arguments


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
    command = [sys.executable, "-m", "examples.study.timed_train", str(training.data)]
    command += [*fixed_flags(training), *training.runs[name]]
    command += ["--save-dir", str(out), "--max-update", str(until)]
    if (checkpoint := newest_whole_checkpoint(out)) is not None:
        command += ["--restore-file", str(checkpoint)]
    with (out / "log.txt").open("a", encoding="utf-8") as log:
        ended = subprocess.run(
            command,
            stdout=log,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=environment(training.workers),
            pass_fds=(lock,),
        )
    # A process that has trained to the end may still crash while it shuts down.
    if ended.returncode and updates_done(out) < until:
        last = (ended.stderr.strip().splitlines() or [f"status {ended.returncode}"])[-1]
        raise UsageError(f"training {name} failed: {last} (log: {log.name})")


def environment(workers: int) -> dict[str, str]:
    """Of a process beside which others train: one thread, which does not spin while it waits."""
    one_thread = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    return os.environ | (one_thread if workers > 1 else {})


@contextmanager
def locked(out: Path):
    """Hold the directory's lock, which each training process shares: a killed call leaves some.

    Yields:
        The file descriptor.
    """
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for another call, or what is left of a killed one, to end")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def keep_settings(training: Training) -> None:
    """Write settings.json, or compare with it: runs go on with what they began with.

    Raises:
        UsageError: the directory holds a run with other settings.
    """
    settings = {"data": str(training.data.resolve()), "flags": fixed_flags(training)}
    settings["flags"].remove(str(PLUGIN))
    keep(training.out, settings)


def keep(out: Path, settings: dict[str, Any], name: str = "settings.json") -> None:
    """Write settings as JSON, or compare them with those that an earlier call has written.

    Args:
        out: the directory that --out names.
        settings: what a run goes on with.
        name: of the file below `out`.

    Raises:
        UsageError: they differ.
    """
    path = out / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        with replacing(path) as aside:
            aside.write_text(json.dumps(settings, indent=1))
    elif json.loads(path.read_text()) != settings:
        raise UsageError(
            f"--out {str(out)!r} holds a run with other settings (see {name}); give another "
            "directory."
        )


def side_by_side(
    jobs: dict[str, Callable[[], None]],
    workers: int,
    progress: tqdm,
    report: Callable[[], object] = lambda: None,
) -> None:
    """Do jobs, some at a time; where one fails, those that have not begun are left out.

    Args:
        jobs: by what the progress bar calls them.
        workers: jobs at a time.
        progress: counts them.
        report: called after each.

    Raises:
        UsageError: what a job raised.
    """

    def do(name: str, job: Callable[[], None]) -> None:
        job()
        progress.set_postfix_str(name)
        progress.update()

    with ThreadPoolExecutor(workers) as pool:
        started = [pool.submit(do, name, job) for name, job in jobs.items()]
        try:
            for job in started:
                job.result()
                report()
        finally:
            for job in started:
                job.cancel()


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
