"""Train one or more encodings side by side with fairseq-train, and show their progress.

    python -m examples.quickstart.train OUT ENCODING... -- FLAGS

Each ENCODING is trained with the same FLAGS in OUT/ENCODING, one process per core, from its last
checkpoint if there is one. Its output is appended to OUT/ENCODING/log.txt. On a terminal each
training has a bar with the time left; elsewhere each validation is one line.
"""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import torch

from examples.quickstart.progress import Bars, Lines, Progress
from examples.shared import script
from tupe_fairseq import UsageError
from tupe_fairseq.checkpoints.whole import repair
from tupe_fairseq.machine import cores

#: Seconds between two looks at the processes, and that a process has to end after SIGTERM.
INTERVAL, PATIENCE = 0.2, 10


class Training:
    """One run of fairseq-train.

    Args:
        folder: of its checkpoints and its log; the last part is the encoding.
        flags: of fairseq-train.
        environment: of the process.
    """

    def __init__(self, folder: Path, flags: Sequence[str], environment: dict[str, str]) -> None:
        self.name = folder.name
        self.log = folder / "log.txt"
        own = ("--position-encoding", self.name, "--save-dir", str(folder))
        self.command = ["fairseq-train", *flags, *own]
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, after the checkpoints of a killed one have been repaired.

        Raises:
            UsageError: the folder cannot be written.
        """
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            repair(self.log.parent)
            with self.log.open("a", encoding="utf-8") as log:
                # A killed process may have left a part of a line.
                log.write("\n")
                log.flush()
                self._process = self._popen(log)
        except OSError as error:
            raise UsageError(f"cannot train in {self.log.parent}: {error.strerror}.") from error

    def _popen(self, log: IO[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=self._environment,
            # The process inherits the lock of the quickstart, so the next call waits for its end.
            close_fds=False,
        )

    def ended(self) -> bool:
        """Whether it has ended.

        Raises:
            UsageError: it failed, or has not trained.
        """
        if self._process is None or (status := self._process.poll()) is None:
            return False
        if status or not (self.log.parent / "checkpoint_last.pt").exists():
            lines = [line for line in self.log.read_text().splitlines() if line.strip()]
            last = lines[-1][:200] if lines else "no output"
            raise UsageError(
                f"fairseq-train of {self.name} exited with status {status}: {last} "
                f"(log: {self.log})"
            )
        return True

    def stop(self) -> None:
        """End the process if it runs."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def train(trainings: Sequence[Training], width: int, progress: Progress) -> None:
    """Run trainings, `width` at a time.

    Raises:
        UsageError: one failed; the others were stopped.
        KeyboardInterrupt: the parent process has exited.
    """
    parent = os.getppid()
    waiting, running = list(trainings), []
    with stopping(trainings):
        while waiting or running:
            while waiting and len(running) < width:
                running.append(waiting.pop(0))
                running[-1].start()
            time.sleep(INTERVAL)
            if os.getppid() != parent:
                raise KeyboardInterrupt
            running = [each for each in running if not each.ended()]
            progress.update()


@contextmanager
def stopping(trainings: Sequence[Training]) -> Iterator[None]:
    """End all processes at the end of the block."""
    try:
        yield
    finally:
        for each in trainings:
            each.stop()


def main() -> None:
    """See the module's docstring."""
    end = sys.argv.index("--")
    out, *encodings = sys.argv[1:end]
    flags = [*sys.argv[end + 1 :], "--log-format", "json", "--log-interval", "10"]
    if not torch.cuda.is_available():
        flags.append("--cpu")
    environment = dict(os.environ)
    if len(encodings) > 1:
        # Equal in all calls, because the number of threads changes rounding.
        environment["OMP_NUM_THREADS"] = "1"
    trainings = [Training(Path(out, name), flags, environment) for name in encodings]
    for each in trainings:
        print(f"   $ {shlex.join(each.command)}", flush=True)
    logs = {each.name: each.log for each in trainings}
    updates = int(flags[flags.index("--max-update") + 1])
    with (Bars if sys.stderr.isatty() else Lines)(logs, updates) as progress:
        train(trainings, cores(), progress)


if __name__ == "__main__":
    script.run(main)
