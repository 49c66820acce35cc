"""Python programs in processes of their own, forked from one that has imported fairseq.

A new interpreter takes four seconds to import torch and fairseq. The process that is forked does
so once a session. It does not import this package, which therefore does its work of importing in
each program. Arguments, environment, streams and exit status are those of a program that was
started by a shell.

Programs that a program or a shell script starts are forked too where a test uses the fixture
`bash`, `forking_path` or `forking_python`: a stand-in for Python asks the process of the tests.
"""

import logging
import multiprocessing
import multiprocessing.connection
import os
import runpy
import shlex
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired

from tests import ROOT

CONTEXT = multiprocessing.get_context("forkserver")
#: An optimizer imports torch._dynamo, which takes more than a second.
PRELOADED = ["fairseq", "fairseq.trainer", "torch.distributed.run", "torch._dynamo"]
CONTEXT.set_forkserver_preload(PRELOADED)
#: multiprocessing loses the exit status of a process for which two threads ask at once.
LOCK = threading.Lock()
#: A variable of a program: the path of a stand-in as its `sys.executable`.
PYTHON = "TESTS_PYTHON"
#: In place of a program of Python; see `forking_path`.
STAND_IN = """
import os, sys
from multiprocessing.connection import Client

python, address, root, *words = sys.argv[1:]
words = words[words[:1] == ["-u"] :]
is_module = words[:1] == ["-m"]
if not (is_module or words and words[0].endswith(".py")) or os.getcwd() != root:
    os.execv(python, [python, *words])
with Client(address) as server:
    server.send((words[is_module:], dict(os.environ), os.getpid()))
    sys.exit(server.recv())
"""


class Program:
    """A program that runs.

    Args:
        name: of a module, or path of a script. It runs in the root of the repository.
        *words: its arguments.
        beside: the id of the stand-in that asks for it. It shares the output of the stand-in, and,
            in the same session, its process group. Otherwise it has a group of its own: os.killpg
            ends it with the processes that it started.
        environment: variables beside those of this process.
    """

    def __init__(
        self, name: str | Path, *words: object, beside: int | None = None, **environment: str
    ) -> None:
        self.args = [str(name), *map(str, words)]
        self._folder = tempfile.TemporaryDirectory()
        self._streams = [Path(self._folder.name, stream) for stream in ("out", "err")]
        streams = self._streams
        if beside is not None:
            streams = [Path(f"/proc/{beside}/fd/{number}") for number in (1, 2)]
        own = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment}
        given = (self.args, own, streams, beside)
        self._process = CONTEXT.Process(target=_become, args=given)
        with LOCK:
            self._process.start()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Exit status, or None while it runs."""
        with LOCK:
            return self._process.exitcode

    def wait(self) -> CompletedProcess:
        """Exit status and output; raises what `until` raises."""
        self.until(lambda: self.poll() is not None)
        return CompletedProcess(self.args, self.poll(), *self._output())

    def until(self, condition: Callable[[], object], patience: float = 120) -> None:
        """Wait until a condition holds, however long that takes on a busy machine.

        Raises:
            AssertionError: the program has ended, and the condition does not hold.
            TimeoutExpired: it made no progress for ``patience`` seconds; it was killed.
        """
        progress = None
        end = 0.0
        while not condition():
            assert self.poll() is None or condition(), self._output()
            if time.monotonic() > end:
                before = progress
                progress = self._progress()
                if before == progress:
                    os.killpg(self.pid, signal.SIGKILL)
                    raise TimeoutExpired(self.args, patience, *self._output())
                end = time.monotonic() + patience
            time.sleep(0.02)

    def _output(self) -> list[str]:
        return [path.read_text() if path.exists() else "" for path in self._streams]

    def _progress(self) -> dict[Path, int]:
        """Sizes of its output, and of the temporary files where its arguments let it write."""
        temporary = Path(tempfile.gettempdir()).resolve()
        named = [Path(word.rpartition("=")[2]).resolve() for word in self.args]
        paths = [*self._streams, *(path for path in named if path.is_relative_to(temporary))]
        for folder in [*paths]:
            paths += [Path(root, name) for root, _, names in os.walk(folder) for name in names]
        sizes = {}
        for path in paths:
            with suppress(OSError):
                sizes[path] = path.stat().st_size
        return sizes


def run(name: str | Path, *words: object, **environment: str) -> CompletedProcess:
    """Run a program to its end."""
    return Program(name, *words, **environment).wait()


def write_program(path: Path, lines: str) -> None:
    """Write a shell script, or a program that begins with #!, which can be executed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(lines if lines.startswith("#!") else f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)


def wait_until(condition: Callable[[], object]) -> None:
    """Until a condition holds, however long that takes on a busy machine."""
    while not condition():
        time.sleep(0.02)


def wait_for_the_lock(out: Path) -> None:
    """Until the processes of a killed call have ended."""
    # Imports this package, which a program is to do itself.
    from tupe_fairseq.base.files import lock

    with (out / ".lock").open() as file:
        wait_until(lambda: lock(file.fileno()))


def is_alive(pid: int) -> bool:
    """Whether a process runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def forking_path(folder: Path) -> Iterator[str]:
    """A PATH with stand-ins: programs that `python` and fairseq-hydra-train start are forked.

    They have the output and the process group of the stand-in, which needs Linux's /proc.
    """
    programs = Path(sys.executable).parent
    if not Path("/proc/self/fd").exists():
        yield os.pathsep.join((str(programs), os.environ["PATH"]))
        return
    file = folder / "stand_in.py"
    hydra = programs / "fairseq-hydra-train"
    file.write_text(STAND_IN)
    with multiprocessing.connection.Listener(family="AF_UNIX") as listener:
        threading.Thread(target=_serve, args=(listener,), daemon=True).start()
        given = [sys.executable, "-ES", file, sys.executable, listener.address, ROOT]
        for name, first in {"python": [], hydra.name: ["-m", hydra]}.items():
            command = shlex.join(map(str, [*given, *first]))
            write_program(folder / name, f'exec {command} "$@"')
        yield os.pathsep.join(map(str, (folder, programs, os.environ["PATH"])))


def _serve(listener: multiprocessing.connection.Listener) -> None:
    """Run the programs that stand-ins ask for."""

    def serve(connection: multiprocessing.connection.Connection) -> None:
        with connection:
            words, environment, stand_in = connection.recv()
            # The stand-in may be killed.
            with suppress(OSError):
                program = Program(*words, beside=stand_in, **environment)
                while program.poll() is None:
                    # It sends nothing more, so this is its end.
                    if connection.poll(0.05):
                        os.kill(program.pid, signal.SIGKILL)
                connection.send(program.poll())

    while True:
        try:
            connection = listener.accept()
        except OSError:
            # The listener is closed.
            return
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


def _become(
    words: list[str], environment: Mapping[str, str], streams: list[Path], beside: int | None
) -> None:
    """Run as `python -m NAME` or `python SCRIPT` does."""
    assert "tupe_fairseq" not in sys.modules
    is_of_session = beside is not None and os.getsid(beside) == os.getsid(0)
    os.setpgid(0, os.getpgid(beside) if is_of_session else 0)
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(environment)
    # In the background of a shell, this process ignores it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Programs start processes as they do elsewhere, and not as this one was started.
    multiprocessing.set_start_method(None, force=True)
    # fairseq set up logging when it was imported, which its commands do otherwise.
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    for number, path in enumerate(streams, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    sys.executable = environment.get(PYTHON, sys.executable)
    sys.argv = words
    sys.path[:0] = environment["PYTHONPATH"].split(os.pathsep)
    if os.path.exists(words[0]):
        sys.path.insert(0, str(Path(words[0]).parent))
        runpy.run_path(words[0], run_name="__main__")
    else:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
