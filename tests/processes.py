"""Python programs in processes of their own, forked from one that has imported fairseq.

A new interpreter takes four seconds to import torch and fairseq. The process that is forked does
so once a session. It does not import this package, which therefore does its work of importing in
each program. Arguments, environment, streams and exit status are those of a program that was
started by a shell.
"""

import logging
import multiprocessing
import os
import runpy
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired

from tests.scripts import ROOT

CONTEXT = multiprocessing.get_context("forkserver")
#: An optimizer imports torch._dynamo, which takes more than a second.
PRELOADED = ["fairseq", "fairseq.trainer", "torch.distributed.run", "torch._dynamo"]
CONTEXT.set_forkserver_preload(PRELOADED)
#: multiprocessing loses the exit status of a process for which two threads ask at once.
LOCK = threading.Lock()


class Program:
    """A program that runs.

    Args:
        name: of a module, or path of a script. It runs in the root of the repository.
        *words: its arguments.
        environment: variables beside those of this process.
    """

    def __init__(self, name: str | Path, *words: object, **environment: str) -> None:
        self.args = [str(name), *map(str, words)]
        self._folder = tempfile.TemporaryDirectory()
        self._streams = [Path(self._folder.name, stream) for stream in ("out", "err")]
        own = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment}
        given = (self.args, own, self._streams)
        self._process = CONTEXT.Process(target=_become, args=given)
        with LOCK:
            self._process.start()
        #: Also the id of its group: os.killpg ends it with the processes that it started.
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Exit status, or None while it runs."""
        with LOCK:
            return self._process.exitcode

    def wait(self, timeout: float = 240) -> CompletedProcess:
        """Exit status and output.

        Raises:
            TimeoutExpired: it has not ended after ``timeout`` seconds; it was killed.
        """
        end = time.monotonic() + timeout
        while self.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        out, err = (path.read_text() if path.exists() else "" for path in self._streams)
        if self.poll() is None:
            os.killpg(self.pid, 9)
            raise TimeoutExpired(self.args, timeout, out, err)
        return CompletedProcess(self.args, self.poll(), out, err)


def run(name: str | Path, *words: object, **environment: str) -> CompletedProcess:
    """Run a program to its end."""
    return Program(name, *words, **environment).wait()


def run_module(words: Sequence[object], log: Path, what: str, workers: int, lock: int) -> None:
    """In place of `examples.shared.jobs.run_module`; the process does not inherit the lock."""
    # Imports this package, which a program is to do itself.
    from examples.shared.jobs import check_status

    ended = run(*words)
    with log.open("a", encoding="utf-8") as file:
        file.write(ended.stdout)
    check_status(ended, what, f" (log: {log})")


def _become(words: list[str], environment: Mapping[str, str], streams: list[Path]) -> None:
    """Run as `python -m NAME` or `python SCRIPT` does."""
    assert "tupe_fairseq" not in sys.modules
    os.setsid()
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(environment)
    # fairseq set up logging when it was imported, which its commands do otherwise.
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    for number, path in enumerate(streams, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    sys.argv = words
    sys.path[:0] = environment["PYTHONPATH"].split(os.pathsep)
    if os.path.exists(words[0]):
        sys.path.insert(0, str(Path(words[0]).parent))
        runpy.run_path(words[0], run_name="__main__")
    else:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
