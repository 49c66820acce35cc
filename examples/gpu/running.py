"""Run a row: its command, until it ends or its time is up, and what it leaves."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from examples.gpu import tests_log
from examples.gpu.plan import Row
from examples.shared.jobs import read_log
from examples.shared.markdown import ROOT
from tupe_fairseq import UsageError

#: Seconds that a process has to end after SIGTERM.
GRACE = 20


class TimeIsUp(Exception):
    """The time of this call is over; the row continues in the next one."""


class Place:
    """Where the rows of a call write, and until when they may run.

    Args:
        out: directory of the results.
        deadline: as of `time.monotonic`.
        lock: file descriptor that processes keep open.
    """

    def __init__(self, out: Path, deadline: float, lock: int):
        self.out, self.deadline, self.lock = out, deadline, lock
        self.work = out / "work"
        (self.work / "logs").mkdir(parents=True, exist_ok=True)

    def log(self, row: Row) -> Path:
        """The output of a row's command."""
        name = "".join(c if c.isalnum() else "_" for c in f"{row.part} {row.name}")
        return self.work / "logs" / f"{name}.txt"

    def call(self, words: tuple[Any, ...], log: Path, limit: float, **variables: str) -> int:
        """Run Python with these arguments; its output is added to a file.

        Returns:
            The exit status, negative for a signal.

        Raises:
            TimeIsUp: at the deadline.
            UsageError: it took longer than the limit in seconds.
        """
        # pip's -e puts the root on the path; a Python in use may lack this package.
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        left = self.deadline - time.monotonic()
        with log.open("a") as out:
            process = subprocess.Popen(
                [sys.executable, *map(str, words)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PYTHONPATH": path, **variables},
                pass_fds=(self.lock,),
            )
            try:
                return process.wait(min(limit, max(left, 0)))
            except subprocess.TimeoutExpired:
                if left < limit:
                    raise TimeIsUp from None
                raise UsageError(f"it did not end within {limit:g} seconds") from None
            finally:
                end(process)


def end(process: subprocess.Popen) -> None:
    """End a process that runs: SIGTERM, then SIGKILL."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run(row: Row, place: Place) -> dict[str, Any]:
    """The result of a row.

    Raises:
        TimeIsUp: at the deadline.
        UsageError: the command failed.
    """
    return KINDS[row.kind](row, place)


def _command(row: Row, place: Place, *more: Any, append: bool = False) -> Path:
    log = place.log(row)
    if not append:
        log.unlink(missing_ok=True)
    status = place.call((*row.command, *more), log, row.limit)
    if status:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        told = next((line for line in reversed(lines) if "rror" in line), (lines or [""])[-1])
        raise UsageError(f"status {status}: {told.strip()[:300]} (log: {log.name})")
    return log


def _tables(row: Row, place: Place) -> dict[str, Any]:
    """What a benchmark writes with --json, and the rows that it has left out."""
    path = place.log(row).with_suffix(".json")
    path.unlink(missing_ok=True)
    log = _command(row, place, "--json", path)
    left = [line for line in log.read_text().splitlines() if line.startswith("left out: ")]
    return {"tables": json.loads(path.read_text())["tables"], "left_out": sorted(set(left))}


def _clock(row: Row, place: Place) -> dict[str, Any]:
    """Words a second, from the time of the updates after the first report."""
    log = _command(row, place)
    clock = next((values for kind, values in read_log(log) if kind == "clock"), None)
    if not clock or not clock["seconds"]:
        raise UsageError(f"no update was timed (log: {log.name})")
    peak = {"peak_bytes": clock["peak_bytes"]} if "peak_bytes" in clock else {}
    return {**peak, "words_per_second": row.words * clock["updates"] / clock["seconds"]}


def _tests(row: Row, place: Place) -> dict[str, Any]:
    """Outcomes, with a new process after each that a test has ended."""
    log = place.out / "tests.jsonl"
    flags = ("-q", "-p", "no:cacheprovider", "-p", "examples.gpu.tests_log", "-m", "gpu")
    device = {} if torch.cuda.is_available() else {"TUPE_FAIRSEQ_TEST_DEVICE": "cpu"}
    place.log(row).unlink(missing_ok=True)
    while True:
        words = ("-m", "pytest", *flags, "--tb=short", *row.command)
        known = len(tests_log.outcomes(log))
        status = place.call(words, place.log(row), row.limit, TESTS_LOG=str(log), **device)
        # All passed, some failed, or none was left.
        if status in (0, 1, 5) and tests_log.begun(log) is None:
            return {}
        if (test := tests_log.begun(log)) is not None:
            message = f"the process ended with status {status}"
            tests_log.write(log, test=test, outcome="failed", message=message)
        elif len(tests_log.outcomes(log)) == known:
            raise UsageError(f"pytest ended with status {status} (log: {place.log(row).name})")


def _study(row: Row, place: Place) -> dict[str, Any]:
    _command(row, place, "--results", place.out / "study", append=True)
    return {"report": "study/report.md"}


KINDS: dict[str, Callable[[Row, Place], dict[str, Any]]] = {
    "tests": _tests,
    "tables": _tables,
    "clock": _clock,
    "study": _study,
}
