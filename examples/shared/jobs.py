"""Processes side by side, settings that must not change between calls, logs."""

import argparse
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tupe_fairseq import UsageError
from tupe_fairseq.files import replacing

PLUGIN = Path(__file__).parents[2] / "tupe_fairseq"
#: Processes that `call` waits for, and whether `side_by_side` was interrupted.
_running: set[subprocess.Popen] = set()
_stopped = threading.Event()
ENTRY = re.compile(r"\| (train_inner|valid|clock) \| (\{.*\})$")


def parse_with_flags(
    parser: argparse.ArgumentParser, argv: list[str] | None = None
) -> argparse.Namespace:
    """Parse arguments; those after `--` are for fairseq-train and become `flags`."""
    parser.epilog = "Arguments after -- are passed to fairseq-train unchanged."
    argv = sys.argv[1:] if argv is None else argv
    end = argv.index("--") if "--" in argv else len(argv)
    arguments = parser.parse_args(argv[:end])
    arguments.flags = argv[end + 1 :]
    return arguments


def call(words: Sequence[object], **options: Any) -> subprocess.CompletedProcess:
    """As subprocess.run, but the process ends if this program or `side_by_side` is interrupted.

    Raises:
        KeyboardInterrupt: `side_by_side` was interrupted.
    """
    if _stopped.is_set():
        raise KeyboardInterrupt
    with subprocess.Popen([*map(str, words)], **options) as process:
        _running.add(process)
        try:
            out, errors = process.communicate()
        except BaseException:
            process.terminate()
            raise
        finally:
            _running.discard(process)
    if _stopped.is_set():
        raise KeyboardInterrupt
    return subprocess.CompletedProcess(process.args, process.returncode, out, errors)


def run_module(words: Sequence[object], log: Path, what: str, workers: int, lock: int) -> None:
    """Run `python -m MODULE FLAGS`; its standard output is appended to a file.

    Args:
        words: the module and its flags.
        log: the file.
        what: description for the error message.
        workers: number of processes that run side by side.
        lock: file descriptor that the process keeps open while it runs.

    Raises:
        UsageError: it failed.
    """
    # With others beside it, a process gets one thread, which does not spin while it waits.
    alone = {} if workers == 1 else {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    with log.open("a", encoding="utf-8") as out:
        ended = call(
            [sys.executable, "-m", *words],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | alone,
            pass_fds=(lock,),
        )
    check_status(ended, what, f" (log: {log})")


def check_status(ended: subprocess.CompletedProcess, what: str, where: str = "") -> None:
    """Raise a UsageError with the last line of stderr if a process failed."""
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or [f"status {ended.returncode}"])[-1]
        raise UsageError(f"{what} failed: {last}{where}")


def side_by_side(
    jobs: dict[str, Callable[[], None]],
    workers: int,
    progress: tqdm,
    report: Callable[[], object] = lambda: None,
) -> None:
    """Run jobs in threads; after a failure, no further job is started.

    Args:
        jobs: by the name that the progress bar shows. They start processes by `call` alone.
        workers: number of jobs at a time.
        progress: counts them.
        report: called after each.

    Raises:
        UsageError: the first error of a job.
        KeyboardInterrupt: from outside; the processes of all jobs are terminated.
    """
    with ThreadPoolExecutor(workers) as pool:
        started = {pool.submit(job): name for name, job in jobs.items()}
        try:
            for job in as_completed(started):
                job.result()
                progress.set_postfix_str(started[job])
                progress.update()
                report()
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            if isinstance(error, KeyboardInterrupt):
                _stopped.set()
                for process in list(_running):
                    process.terminate()
            raise


def keep(
    out: Path,
    settings: dict[str, Any],
    name: str = "settings.json",
    of: str = "a run with other settings",
) -> None:
    """Write settings as JSON, or compare them with those of an earlier call.

    Args:
        out: the directory that --out names.
        settings: what decides the results.
        name: of the file below `out`.
        of: what the directory holds if they differ.

    Raises:
        UsageError: they differ.
    """
    path = out / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        with replacing(path) as aside:
            aside.write_text(json.dumps(settings, indent=1))
    elif json.loads(path.read_text()) != settings:
        raise UsageError(f"--out {str(out)!r} holds {of} (see {name}); give another directory.")


def read_log(log: Path) -> list[tuple[str, dict[str, Any]]]:
    """The JSON entries `train_inner`, `valid` and `clock` of a log in order, numbers as floats."""
    entries = []
    for line in log.read_text(encoding="utf-8").split("\n") if log.exists() else ():
        if match := ENTRY.search(line):
            values = json.loads(match[2])
            entries.append((match[1], {key: _number(value) for key, value in values.items()}))
    return entries


def _number(value: Any) -> Any:
    try:
        return float(value)
    except (TypeError, ValueError):
        return value
