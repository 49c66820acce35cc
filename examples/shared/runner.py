"""Run a grid of commands: a folder for each run, several at once, results as JSON.

A study is a plan, which is a list of `Run`, and a report, which is a function that reads
OUT/results.json (see results.py). Completed runs are skipped. A run that was interrupted or has
failed starts again with its first command in the same folder, and its commands continue from what
is there. A failure is reported in one line and does not stop the other runs.

    args = arguments(parser, argv, "examples.study.my_study")
    with runner(args, plan={...}, report=write_report) as execute:
        execute([Run("rope/1", {"encoding": "rope", "seed": 1}, [[...]], read_result), ...])
"""

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from datetime import date
from fnmatch import fnmatch
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

import torch

from examples.shared.markdown import ROOT
from examples.shared.results import NAME, Results, read_results
from tupe_fairseq import UsageError
from tupe_fairseq.base.files import lock, replacing
from tupe_fairseq.base.machine import commit, cores, processor, shown
from tupe_fairseq.fairseq.checkpoints.intact import repair
from tupe_fairseq.fairseq.commands import add_user_dir


class Run(NamedTuple):
    """A run of a plan.

    Attributes:
        name: its folder below OUT.
        settings: by which reports select and name runs; `part` is its group.
        commands: executed in order. Each continues what an interrupted call has begun. Their
            output is appended to log.txt in the folder.
        result: reads the numbers from the folder after the last command.
    """

    name: str
    settings: dict[str, Any]
    commands: Sequence[Sequence[object]]
    result: Callable[[Path], dict[str, Any]]


def arguments(
    parser: argparse.ArgumentParser, argv: Sequence[str] | None, module: str, trains: bool = True
) -> argparse.Namespace:
    """Parse a study's command line.

    Adds --out, --workers, --only and --user-dir. If the study `trains`, arguments after `--` are
    for fairseq-train and become `flags`; `command` is the whole command line.
    """
    add = parser.add_argument
    add("--out", type=Path, required=True, help="directory of all output")
    add("--workers", type=int, default=1, help="runs at a time, spread over all GPUs")
    add("--only", nargs="+", metavar="NAME", help="runs with these names, as in '*/rope/*'")
    add_user_dir(parser)
    argv = list(sys.argv[1:] if argv is None else argv)
    end = len(argv)
    if trains:
        parser.epilog = "Arguments after -- are passed to fairseq-train unchanged."
        end = argv.index("--") if "--" in argv else end
    args = parser.parse_args(argv[:end])
    if args.workers < 1:
        raise UsageError(f"--workers must be at least 1, but is {args.workers}.")
    args.flags = argv[end + 1 :]
    args.command = ["python", "-m", module, *argv]
    return args


@contextmanager
def runner(
    args: argparse.Namespace, plan: dict[str, Any], report: Callable[[Path], None]
) -> Iterator["Runner"]:
    """A function that executes runs below --out, which is locked until the block ends.

    Args:
        args: what `arguments` returns.
        plan: settings of the whole study, for the report.
        report: called with --out, at first and after each run.

    Raises:
        UsageError: another call is running in the folder; at the end: runs have failed.
    """
    args.out.mkdir(parents=True, exist_ok=True)
    with (args.out / ".lock").open("a") as file:
        # Processes inherit the lock, so those that a killed call has left hold it as well.
        if not lock(file.fileno()):
            raise UsageError(f"another call, or a process left by a killed call, uses {args.out}.")
        execute = Runner(args, plan, report, file.fileno())
        yield execute
    if (args.out / "report.md").exists():
        print(f"report: {args.out / 'report.md'}")
    if args.only and not execute.names:
        raise UsageError(
            f"--only is {' '.join(args.only)!r}, but no run has such a name; {args.out / NAME} "
            "has the names so far."
        )
    if execute.failed:
        raise UsageError(f"{len(execute.failed)} runs failed: {', '.join(execute.failed)}.")


class Runner:
    """Executes runs; see `runner`."""

    def __init__(
        self,
        args: argparse.Namespace,
        plan: dict[str, Any],
        report: Callable[[Path], None],
        lock: int,
    ):
        self.args = args
        self.report = report
        self.lock = lock
        self.out = args.out.absolute()
        self.results: Results = {"command": "", "plan": {}, "runs": {}}
        if (self.out / NAME).exists():
            self.results = read_results(self.out)
        # Results of a part that was removed from the plan are still reported.
        plan = self.results["plan"] | plan
        self.results |= {"command": self._shown(args.command), "plan": plan}
        self.names: list[str] = []
        self.failed: list[str] = []
        self.machine = machine()
        self.devices: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        for device in islice(cycle(visible_devices()), args.workers):
            self.devices.put(device)
        # The threads share the results, and the processes to terminate.
        self.guard = threading.Lock()
        self.processes: set[subprocess.Popen] = set()
        self.stopped = False

    def __call__(self, runs: Sequence[Run], always: bool = False) -> None:
        """Execute the runs that are not complete, and write the report after each.

        Args:
            runs: those of `--only` are executed.
            always: execute all; for the data that other runs need.

        Raises:
            UsageError: the folder holds a run with other settings; nothing was executed.
        """
        runs = [*{run.name: run for run in runs}.values()]
        wanted = ["*"] if always else self.args.only or ["*"]
        chosen = [run for run in runs if any(fnmatch(run.name, name) for name in wanted)]
        names = [run.name for run in chosen]
        self.names += [] if always else names
        known = self.results["runs"]
        entries = {run.name: self._entry(run) for run in runs}
        for run in chosen:
            self._check(run, entries[run.name])
        for name, entry in entries.items():
            # What --only leaves out stays as it is.
            if name not in known or (name in names and not entry.items() <= known[name].items()):
                known[name] = entry
        self._write()
        self.report(self.out)
        pending = [run for run in chosen if not self.is_done(run.name)]
        if len(pending) < len(chosen):
            say(f"{len(chosen) - len(pending)} of {len(chosen)} runs are complete already")
        with ThreadPoolExecutor(self.args.workers) as pool:
            jobs = [pool.submit(self._execute, run) for run in pending]
            try:
                for job in as_completed(jobs):
                    job.result()
                    self.report(self.out)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self._stop()
                raise

    def is_done(self, name: str) -> bool:
        """Whether a run has a result."""
        return "result" in self.results["runs"].get(name, {})

    def _entry(self, run: Run) -> dict[str, Any]:
        """What identifies a run in the results, without folders of this machine."""
        settings = json.loads(json.dumps(run.settings))
        return {"settings": settings, "commands": [*map(self._shown, run.commands)]}

    def _shown(self, command: Sequence[object]) -> str:
        words = ["python" if word == sys.executable else word for word in command]
        return shown(words, {"OUT": self.out})

    def _check(self, run: Run, entry: dict[str, Any]) -> None:
        """Refuse to mix results of different settings."""
        known = self.results["runs"].get(run.name, {})
        folder = self.out / run.name
        if "seconds" in known and folder.exists() and not entry.items() <= known.items():
            raise UsageError(
                f"--out {str(self.args.out)!r} holds {run.name} with other settings (see {NAME}): "
                "give another directory, or remove the run's."
            )

    def _execute(self, run: Run) -> None:
        """Execute a run, in a thread of its own."""
        folder = self.out / run.name
        entry = self.results["runs"][run.name]
        began = time.monotonic()
        before = entry.get("seconds", 0.0)
        device = self.devices.get()
        say(f"{run.name}: start")
        self._write(entry, seconds=before, **self.machine)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            repair(folder)
            for command in run.commands:
                self._call(command, folder / "log.txt", device)
            self._write(entry, result=json.loads(json.dumps(run.result(folder))))
            say(f"{run.name}: done after {time.monotonic() - began:.0f} s")
        except (OSError, ValueError, LookupError) as error:
            if not self.stopped:
                self.failed.append(run.name)
                say(f"{run.name}: failed: {error} (log: {folder / 'log.txt'})")
        finally:
            self.devices.put(device)
            self._write(entry, seconds=round(before + time.monotonic() - began, 1))

    def _call(self, command: Sequence[object], log: Path, device: str | None) -> None:
        """Run a command.

        Raises:
            UsageError: it failed; the message is the last line of the log.
        """
        threads = max(1, cores() // self.args.workers)
        # Waiting threads yield the core.
        own = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"} | os.environ
        own |= {"CUDA_VISIBLE_DEVICES": device} if device else {}
        with log.open("a") as out:
            # A killed process may have left a part of a line.
            out.write("\n" if out.tell() else "")
            out.flush()
            streams: Any = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
            with self.guard:
                if self.stopped:
                    raise UsageError("stopped")
                process = subprocess.Popen(
                    [*map(str, command)], env=own, pass_fds=(self.lock,), **streams
                )
                self.processes.add(process)
        status = process.wait()
        with self.guard:
            self.processes.discard(process)
        if status:
            lines = log.read_text(errors="replace").strip().splitlines()
            raise UsageError(lines[-1] if lines else f"status {status}")

    def _stop(self) -> None:
        """Terminate all processes, and start no further ones."""
        with self.guard:
            self.stopped = True
            for process in self.processes:
                process.terminate()

    def _write(self, entry: dict[str, Any] | None = None, **values: Any) -> None:
        """Write results.json, after setting values of a run."""
        with self.guard:
            if entry is not None:
                entry.update(values)
            with replacing(self.out / NAME) as aside:
                aside.write_text(json.dumps(self.results, indent=1) + "\n", encoding="utf-8")


def say(text: str) -> None:
    """Print a line with the time."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def machine() -> dict[str, str]:
    """Date, device and versions."""
    on_gpu = torch.cuda.is_available()
    device = torch.cuda.get_device_name() if on_gpu else f"{processor()}, {os.cpu_count()} cores"
    found = {"date": str(date.today()), "device": device}
    return {**found, "commit": commit(ROOT), "torch": torch.__version__}


def visible_devices() -> list[str | None]:
    """Values of CUDA_VISIBLE_DEVICES, one for each GPU; [None] without a GPU."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return (given.split(",") if given else [str(i) for i in range(count)]) if count else [None]
