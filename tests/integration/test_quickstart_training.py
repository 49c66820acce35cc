"""Trainings of the quickstart side by side: resumed, shown, and ended together.

`fairseq-train` is a small program here that writes the log and the checkpoints of one.
"""

import os
import pty
import signal
import sys
import termios
import threading
import time
import zipfile
from pathlib import Path

import pytest

from examples.quickstart import train as driver
from examples.quickstart.progress import Bars, Lines, validations
from examples.quickstart.train import Training, train
from tests import processes
from tests.disks import full_disk, read_only
from tupe_fairseq import UsageError

#: Counts to --max-update; the number of updates done is in the checkpoint.
PROGRAM = f"""#!{sys.executable}
import json, os, sys, time, zipfile
flags = dict(zip(sys.argv, sys.argv[1:]))
folder, name = flags["--save-dir"], flags["--position-encoding"]
last = folder + "/checkpoint_last.pt"
done = int(zipfile.ZipFile(last).read("updates")) if os.path.exists(last) else 0
print("threads", os.environ.get("OMP_NUM_THREADS"), "from", done)
open(folder + "/pid", "w").write(str(os.getpid()))
if flags.get("--fail") == name:
    sys.exit("ValueError: it failed")
while done < int(flags["--max-update"]):
    done += 10
    entry = {{"valid_loss": str(9 - done / 100), "valid_num_updates": str(done)}}
    print("2026 | INFO | valid | " + json.dumps(entry), flush=True)
    with zipfile.ZipFile(last, "w") as archive:
        archive.writestr("updates", str(done))
    time.sleep(float(flags.get("--pause", 0)))
"""


@pytest.fixture(autouse=True)
def program(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    path = tmp_path / "bin" / "fairseq-train"
    path.write_text(PROGRAM)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(driver, "INTERVAL", 0.01)


def trainings(out: Path, *flags: str, names=("tupe_r", "learned")) -> list[Training]:
    flags = ("data", "--max-update", "30", *flags)
    return [Training(out / name, flags, dict(os.environ)) for name in names]


def lines(runs: list[Training]) -> Lines:
    return Lines({each.name: each.log for each in runs}, 30)


def wait_for(path: Path) -> bytes:
    end = time.monotonic() + 60
    while not (path.exists() and path.read_bytes()) and time.monotonic() < end:
        time.sleep(0.02)
    return path.read_bytes()


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def still_running(made: list[Training]) -> list[str]:
    """Names of trainings whose processes run; one may have ended before it wrote its id."""
    pids = {each.name: each.log.with_name("pid") for each in made}
    return [n for n, path in pids.items() if path.exists() and runs(int(path.read_text()))]


@pytest.mark.parametrize("width", [1, 2])
def test_each_validation_is_one_line(tmp_path, capsys, width):
    made = trainings(tmp_path)
    with lines(made) as progress:
        train(made, width, progress)
    told = capsys.readouterr().out
    assert "\x1b" not in told
    assert "\r" not in told
    expected = [
        f"   {name}: {n} of 30 updates, {9 - n / 100:.2f} bits per masked token (validation)"
        for name in ("tupe_r", "learned")
        for n in (10, 20, 30)
    ]
    assert sorted(told.splitlines()) == sorted(expected)


def read_until(leader: int, end: str, told: list[str]) -> None:
    while end not in "".join(told):
        told.append(os.read(leader, 4096).decode())


def test_bars_on_a_terminal(tmp_path, monkeypatch):
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (24, 100))
    told: list[str] = []
    # While the bars are drawn, since a terminal holds few characters that nobody has read.
    reader = threading.Thread(target=read_until, args=(leader, "the end", told), daemon=True)
    reader.start()
    monkeypatch.setattr(sys, "stderr", os.fdopen(follower, "w"))
    made = trainings(tmp_path)
    with Bars({each.name: each.log for each in made}, 30) as progress:
        train(made, 2, progress)
    print("the end", file=sys.stderr, flush=True)
    reader.join(60)
    for part in ("tupe_r  100%", "learned 100%", "30/30", "left", "8.70 bits per masked token"):
        assert part in "".join(told)


def test_trainings_resume_from_their_last_whole_checkpoint(tmp_path):
    made = trainings(tmp_path)
    for each, content in zip(made, (b"whole", b"part"), strict=True):
        each.log.parent.mkdir()
        last = each.log.parent / "checkpoint_last.pt"
        with zipfile.ZipFile(last, "w") as archive:
            archive.writestr("updates", "20")
        if content == b"part":
            last.write_bytes(last.read_bytes()[:40])
    # A part of a line, which a killed process has left.
    made[0].log.write_text('2026 | INFO | valid | {"valid_loss": "8.')
    with lines(made) as progress:
        train(made, 2, progress)
    assert "from 20" in made[0].log.read_text()
    assert "from 0" in made[1].log.read_text()
    assert [*validations(made[0].log)] == [30]
    assert [*validations(made[1].log)] == [10, 20, 30]


def test_a_failure_ends_the_other_training(tmp_path):
    made = trainings(tmp_path, "--fail", "learned", "--pause", "60")
    with pytest.raises(
        UsageError, match=r"learned exited with status 1: ValueError: it failed \("
    ):
        train(made, 2, lines(made))
    assert not still_running(made)


def test_full_disk_and_read_only_folder(tmp_path):
    made = trainings(tmp_path / "full", "--pause", "60")
    with full_disk(0), pytest.raises(UsageError, match="full/tupe_r: File too large"):
        train(made, 2, lines(made))
    (tmp_path / "read_only").mkdir()
    made = trainings(tmp_path / "read_only")
    with read_only(tmp_path / "read_only"), pytest.raises(UsageError, match="Permission denied"):
        train(made, 2, lines(made))


def test_a_program_without_output_is_named(tmp_path):
    (tmp_path / "bin" / "fairseq-train").write_text("#!/bin/sh\nexit 3\n")
    made = trainings(tmp_path)
    with pytest.raises(UsageError, match=r"exited with status 3: no output \(log: "):
        train(made, 2, lines(made))


def test_trainings_end_when_the_calling_shell_is_killed(tmp_path, monkeypatch):
    made = trainings(tmp_path, "--pause", "60")
    parents = iter([1, 1, 1])
    monkeypatch.setattr(os, "getppid", lambda: next(parents, 2))
    with pytest.raises(KeyboardInterrupt):
        train(made, 2, lines(made))
    assert not still_running(made)


def test_sigterm_ends_both_trainings_and_the_next_call_continues(tmp_path):
    words = ["examples.quickstart.train", tmp_path, "tupe_r", "learned", "--", "data"]
    words += ["--max-update", "30"]
    killed = processes.Program(*words, "--pause", "60")
    pids = [int(wait_for(tmp_path / name / "pid")) for name in ("tupe_r", "learned")]
    for name in ("tupe_r", "learned"):
        wait_for(tmp_path / name / "checkpoint_last.pt")
    os.kill(killed.pid, signal.SIGTERM)
    ended = killed.wait()
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "stopped; run the same command again to continue."
    assert not any(map(runs, pids))
    ended = processes.run(*words)
    assert ended.returncode == 0, ended.stderr
    for name in ("tupe_r", "learned"):
        log = (tmp_path / name / "log.txt").read_text()
        assert "threads 1 from 10" in log
        assert [*validations(tmp_path / name / "log.txt")] == [10, 20, 30]
        assert f"--position-encoding {name} --save-dir" in ended.stdout
