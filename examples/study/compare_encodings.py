"""Pre-train every position encoding on the same data in the same order, and compare them.

    python examples/study/compare_encodings.py DATA_BIN --out DIRECTORY

DATA_BIN is what fairseq-preprocess wrote. The encodings take turns: each round trains every one of
them a share of the updates, so that the machine's moods meet all alike and a run that is stopped
has compared something. Run again, it goes on where it stopped; with --report, it writes the table
and the figure of what there is, also while another call trains. In DIRECTORY:

    NAME/                 checkpoints and log.txt of an encoding
    settings.json         what all were trained with; another call must have the same
    comparison.json       what the table and the figure are made of
    comparison.md         parameters, validation loss, speed relative to `learned`
    comparison.png        validation loss against updates (matplotlib, the extra `viz`)
"""

from __future__ import annotations

import argparse
import fcntl
import json
import logging
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from comparison import newest_checkpoint, report, updates_done
from tqdm import tqdm

from tupe_fairseq import UsageError
from tupe_fairseq.files import replacing
from tupe_fairseq.position import POSITION_ENCODINGS

HERE = Path(__file__).parent
PLUGIN = HERE.parents[1] / "tupe_fairseq"
TOKENS_PER_SAMPLE = 128


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Arguments; what follows `--` goes to fairseq-train as it is."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="binarised masked-LM data")
    parser.add_argument("--out", type=Path, required=True, help="directory of the results")
    parser.add_argument("--encodings", default=",".join(POSITION_ENCODINGS), help="which")
    parser.add_argument("--updates", type=int, default=9600, help="per encoding")
    parser.add_argument("--rounds", type=int, default=4, help="turns in which they are trained")
    parser.add_argument("--validations", type=int, default=2, help="in each round")
    parser.add_argument("--workers", type=int, default=1, help="encodings trained side by side")
    parser.add_argument("--arch", default="tupe_roberta_tiny")
    parser.add_argument("--batch-size", type=int, default=8, help="sequences of 128 tokens")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", action="store_true", help="only report what there is")
    parser.epilog = "What follows -- goes to fairseq-train as it is."
    argv = sys.argv[1:] if argv is None else argv
    own, flags = argv, []
    if "--" in argv:
        own, flags = argv[: argv.index("--")], argv[argv.index("--") + 1 :]
    arguments = parser.parse_args(own)
    arguments.flags = flags
    arguments.encodings = arguments.encodings.split(",")
    check(arguments)
    return arguments


def check(arguments: argparse.Namespace) -> None:
    """Refuse what cannot be trained.

    Raises:
        UsageError: an unknown encoding, no data, or rounds that do not come out even.
    """
    for name in arguments.encodings:
        POSITION_ENCODINGS[name]
    if not (arguments.data / "dict.txt").is_file():
        raise UsageError(f"DATA_BIN is {str(arguments.data)!r}, but holds no dict.txt.")
    if min(arguments.rounds, arguments.validations, arguments.workers) < 1:
        raise UsageError("--rounds, --validations and --workers must be at least 1.")
    parts = arguments.rounds * arguments.validations
    if arguments.updates < 1 or arguments.updates % parts:
        raise UsageError(
            f"--rounds times --validations must divide --updates {arguments.updates}, but is "
            f"{parts}."
        )


def fixed_flags(arguments: argparse.Namespace) -> list[str]:
    """What all encodings and all rounds share."""
    share = arguments.updates // arguments.rounds
    flags: list[Any] = [
        *("--user-dir", PLUGIN, "--arch", arguments.arch, "--seed", arguments.seed),
        *("--task", "masked_lm", "--criterion", "masked_lm"),
        # Blocks over the ends of lines: no text is lost, and none is padding.
        *("--sample-break-mode", "none", "--tokens-per-sample", TOKENS_PER_SAMPLE),
        *("--batch-size", arguments.batch_size, "--required-batch-size-multiple", 1),
        # Text that is seen about once cannot be overfitted.
        *("--dropout", 0, "--attention-dropout", 0),
        *("--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--adam-eps", 1e-6),
        *("--clip-norm", 1.0, "--weight-decay", 0.01, "--lr", arguments.lr),
        *("--lr-scheduler", "polynomial_decay", "--warmup-updates", arguments.updates // 20),
        *("--total-num-update", arguments.updates),
        *("--validate-interval-updates", share // arguments.validations),
        *("--save-interval-updates", share, "--keep-interval-updates", 1),
        *("--no-epoch-checkpoints", "--num-workers", 0),
        *("--log-format", "json", "--log-interval", max(1, share // 10)),
    ]
    flags += [] if torch.cuda.is_available() else ["--cpu"]
    return [*map(str, flags), *arguments.flags]


def train(arguments: argparse.Namespace, name: str, until: int, lock: int) -> None:
    """Train one encoding up to an update, from its newest checkpoint on; append to its log.

    Args:
        arguments: of the command line.
        name: of the encoding.
        until: update.
        lock: file descriptor that the process keeps open while it runs.

    Raises:
        UsageError: fairseq-train failed.
    """
    out = arguments.out / name
    out.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(HERE / "timed_train.py"), str(arguments.data)]
    command += [*fixed_flags(arguments), "--position-encoding", name]
    command += ["--save-dir", str(out), "--max-update", str(until)]
    if (checkpoint := newest_checkpoint(out)) is not None:
        command += ["--restore-file", str(checkpoint)]
    one_thread = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    environment = os.environ | (one_thread if arguments.workers > 1 else {})
    with (out / "log.txt").open("a", encoding="utf-8") as log:
        ended = subprocess.run(
            command,
            stdout=log,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=environment,
            pass_fds=(lock,),
        )
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or [f"status {ended.returncode}"])[-1]
        raise UsageError(f"training {name} failed: {last} (log: {log.name})")


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


def keep_settings(arguments: argparse.Namespace) -> None:
    """Write settings.json, or compare with it: a run goes on with what it began with.

    Raises:
        UsageError: the directory holds a run with other settings.
    """
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "settings.json"
    settings = {"data": str(arguments.data.resolve()), "flags": fixed_flags(arguments)}
    settings["flags"].remove(str(PLUGIN))
    if not path.exists():
        with replacing(path) as aside:
            aside.write_text(json.dumps(settings, indent=1))
    elif json.loads(path.read_text()) != settings:
        raise UsageError(
            f"--out {str(arguments.out)!r} holds a run with other settings (see settings.json); "
            "give another directory."
        )


def describe(arguments: argparse.Namespace) -> str:
    """The settings in a sentence."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return (
        f"{arguments.arch}, {arguments.batch_size} × {TOKENS_PER_SAMPLE} tokens an update, "
        f"{arguments.updates:,} updates planned, lr {arguments.lr:g}, seed {arguments.seed}, "
        f"{device}."
    )


def run_rounds(arguments: argparse.Namespace, lock: int) -> None:
    """Train in rounds, report after each."""
    share = arguments.updates // arguments.rounds
    turns = len(arguments.encodings) * arguments.rounds
    with tqdm(total=turns, unit="run") as progress, ThreadPoolExecutor(arguments.workers) as pool:

        def turn(name: str, until: int) -> None:
            if updates_done(arguments.out / name) < until:
                train(arguments, name, until, lock)
            progress.set_postfix_str(f"{name} to update {until}")
            progress.update()

        for until in range(share, arguments.updates + 1, share):
            started = [pool.submit(turn, name, until) for name in arguments.encodings]
            try:
                for run in started:
                    run.result()
            finally:
                for run in started:
                    run.cancel()
            report(arguments.out, arguments.encodings, describe(arguments))


def main(argv: list[str] | None = None) -> None:
    """See the module's text."""
    arguments = parse(argv)
    # Importing fairseq makes all libraries tell their debugging.
    logging.getLogger().setLevel(logging.WARNING)
    if arguments.report:
        keep_settings(arguments)
        report(arguments.out, arguments.encodings, describe(arguments))
    else:
        with locked(arguments.out) as lock:
            keep_settings(arguments)
            run_rounds(arguments, lock)
    print((arguments.out / "comparison.md").read_text())


if __name__ == "__main__":
    # As after Ctrl-C: what has not begun is not begun any more.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    try:
        main()
    except (UsageError, OSError) as error:
        sys.exit(f"error: {error}")
