"""Trainings of the quickstart side by side: shown, and resumed; tests of the runner stop it.

`fairseq-train` is a small program here that writes the log and the checkpoints of one.
"""

import os
import sys
import zipfile
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from examples.quickstart.progress import validations
from tests import processes

#: Counts to --max-update; the number of updates done is in the checkpoint.
PROGRAM = f"""#!{sys.executable}
import json, os, sys, zipfile
flags = dict(zip(sys.argv, sys.argv[1:]))
folder, name = flags["--save-dir"], flags["--position-encoding"]
last = folder + "/checkpoint_last.pt"
done = int(zipfile.ZipFile(last).read("updates")) if os.path.exists(last) else 0
print("threads", os.environ.get("OMP_NUM_THREADS"), "from", done)
while done < int(flags["--max-update"]):
    done += 10
    entry = {{"valid_loss": str(9 - done / 100), "valid_num_updates": str(done)}}
    print("2026 | INFO | valid | " + json.dumps(entry), flush=True)
    with zipfile.ZipFile(last, "w") as archive:
        archive.writestr("updates", str(done))
"""


@pytest.fixture(autouse=True)
def program(tmp_path, monkeypatch):
    path = tmp_path / "bin" / "fairseq-train"
    processes.write_program(path, PROGRAM)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")


def train(out: Path) -> CompletedProcess:
    words = (out, "tupe_r", "learned", "--", "data", "--max-update", "30")
    return processes.run("examples.quickstart.train", *words)


def test_each_validation_is_one_line(tmp_path):
    told = train(tmp_path).stdout
    assert "\x1b" not in told
    for name in ("tupe_r", "learned"):
        assert f"--position-encoding {name} --save-dir {tmp_path}/{name}\n" in told
        for n in (10, 20, 30):
            line = f"   {name}: {n} of 30 updates, {9 - n / 100:.2f} bits per masked token\n"
            assert told.count(line) == 1


def test_trainings_resume_from_their_last_intact_checkpoint(tmp_path):
    for name, content in (("tupe_r", "whole"), ("learned", "part")):
        (tmp_path / name).mkdir()
        last = tmp_path / name / "checkpoint_last.pt"
        with zipfile.ZipFile(last, "w") as archive:
            archive.writestr("updates", "20")
        if content == "part":
            last.write_bytes(last.read_bytes()[:40])
    # A part of a line, which a killed process has left.
    (tmp_path / "tupe_r/log.txt").write_text('2026 | INFO | valid | {"valid_loss": "8.')
    assert train(tmp_path).returncode == 0
    logs = [tmp_path / name / "log.txt" for name in ("tupe_r", "learned")]
    assert "threads 1 from 20" in logs[0].read_text()
    assert "threads 1 from 0" in logs[1].read_text()
    assert [*validations(logs[0])] == [30]
    assert [*validations(logs[1])] == [10, 20, 30]
