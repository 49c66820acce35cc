"""examples/shared/workers.py: processes of a pool end with their parent, and at once."""

import os
import signal
from pathlib import Path

import pytest

from tests import processes
from tests.processes import is_alive, wait_until

#: Writes the numbers of two workers, which then do jobs that take long.
PROGRAM = """
import os, sys, time
from pathlib import Path
from examples.shared import script
from examples.shared.workers import pool

numbers = Path(sys.argv[1])

def number(job):
    # Each waits for the other, so that both work.
    numbers.with_suffix(f".{job}").touch()
    while not numbers.with_suffix(f".{1 - job}").exists():
        time.sleep(0.02)
    return os.getpid()

def main():
    with pool(2) as results:
        numbers.with_suffix(".partial").write_text(f"{set(results(number, range(2)))}")
        numbers.with_suffix(".partial").rename(numbers)
        list(results(time.sleep, [600] * 8))

if __name__ == "__main__":
    script.run(main)
"""
STOPPED = "stopped; run the same command again to continue.\n"


@pytest.fixture
def program(tmp_path) -> processes.Program:
    (tmp_path / "program.py").write_text(PROGRAM)
    started = processes.Program(tmp_path / "program.py", tmp_path / "numbers")
    started.until((tmp_path / "numbers").exists)
    return started


def check_workers_have_ended(folder: Path) -> None:
    numbers = (folder / "numbers").read_text().strip("{}").split(", ")
    assert len(numbers) == 2
    wait_until(lambda: not any(is_alive(int(number)) for number in numbers))


def test_workers_end_with_a_killed_parent(program, tmp_path):
    os.kill(program.pid, signal.SIGKILL)
    assert program.wait().returncode == -signal.SIGKILL
    check_workers_have_ended(tmp_path)


@pytest.mark.parametrize("send", [os.kill, os.killpg])
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=lambda how: how.name)
def test_an_interrupted_program_does_not_wait_for_jobs(program, tmp_path, send, how):
    """The signal comes from a terminal, which sends it to all, or from a script to the program."""
    send(program.pid, how)
    ended = program.wait()
    assert (ended.returncode, ended.stderr) == (1, STOPPED)
    check_workers_have_ended(tmp_path)


def test_a_killed_worker_is_named(program, tmp_path):
    worker = (tmp_path / "numbers").read_text().strip("{}").split(", ")[0]
    os.kill(int(worker), signal.SIGKILL)
    ended = program.wait()
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: a process was killed, possibly for lack of memory")
    check_workers_have_ended(tmp_path)


def test_cleaning_is_interrupted_within_a_file(tmp_path):
    """Of hours of work, in a file without blocks on the disk; what is complete is kept."""
    (tmp_path / "a").write_text("one\n")
    (tmp_path / "b").touch()
    os.truncate(tmp_path / "b", 1 << 36)
    out = tmp_path / "out"
    files = (tmp_path / "a", tmp_path / "b")
    words = ("examples.pretraining.clean", *files, "--out", out, "--workers", 1)
    cleaning = processes.Program(*words)
    cleaning.until(
        lambda: {path.name[:14] for path in out.rglob("*")} >= {"000000.json", ".000001.train."}
    )
    os.kill(cleaning.pid, signal.SIGTERM)
    ended = cleaning.wait()
    assert ended.returncode == 1
    assert ended.stderr.endswith(STOPPED)
    assert [path.name for path in out.rglob("*.json")] == ["000000.json"]
