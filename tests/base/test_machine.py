"""What a process may use of the machine."""

import os
import platform
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from examples.glue.preprocess import arguments as glue_arguments
from examples.pretraining import encode
from tupe_fairseq.base import machine


@pytest.fixture
def one_core():
    """A thread that may use one core; other threads keep theirs."""
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("no affinity on this system")
    first = min(os.sched_getaffinity(0))
    with ThreadPoolExecutor(1, initializer=os.sched_setaffinity, initargs=(0, {first})) as pool:
        yield pool


def test_cores_are_those_that_the_process_may_use(one_core, monkeypatch):
    assert one_core.submit(machine.cores).result() == 1
    monkeypatch.delattr(os, "sched_getaffinity")
    assert machine.cores() == os.cpu_count()


def test_programs_start_as_many_processes(one_core, tmp_path, monkeypatch):
    (tmp_path / "train.txt").touch()
    words = [str(tmp_path), "--out", "out", "--sentencepiece", "40"]
    assert one_core.submit(encode.parse, words).result().workers == 1
    monkeypatch.setattr("sys.argv", ["preprocess", "glue", "CoLA", "bpe", "out"])
    assert one_core.submit(glue_arguments).result().workers == 1


def test_processor(monkeypatch):
    information = Path("/proc/cpuinfo")
    if information.exists() and "model name" in information.read_text():
        assert f": {machine.processor()}\n" in information.read_text()

    def absent(_):
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", absent)
    assert machine.processor() == platform.machine()


def test_commit(tmp_path: Path, monkeypatch):
    # git does not look for a repository above the folder.
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert machine.commit(tmp_path) == "unknown"
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    (tmp_path / "a").touch()
    for words in ("init -q", "add a", "commit -q -m first", "tag -a -m v v1"):
        subprocess.run([*git, *words.split()], check=True)
    # git would write its index anew, and leave its lock there on a full disk or when killed.
    os.utime(tmp_path / "a", (1, 1))
    before = (tmp_path / ".git/index").read_bytes()
    assert machine.commit(tmp_path) == "v1"
    assert (tmp_path / ".git/index").read_bytes() == before
    (tmp_path / "a").write_text("changed")
    assert machine.commit(tmp_path) == "v1-dirty"


def test_commands_are_shown_without_absolute_paths(tmp_path):
    words = ["python", machine.ROOT / "examples/x.py", f"a={tmp_path}/out/1", "../near"]
    words += ["/far/away", "1", f"{tmp_path}/out/lr=2/model.pt"]
    shown_words = machine.shown(words, {"OUT": tmp_path / "out"})
    assert shown_words == "python examples/x.py a=OUT/1 ../near away 1 OUT/lr=2/model.pt"
