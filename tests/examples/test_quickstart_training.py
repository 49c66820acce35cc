"""Trainings of the quickstart side by side: shown, and resumed; tests of the runner stop it.

`fairseq-train` is a small program here that writes the log and the checkpoints of one.
"""

import os
import sys
import zipfile

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


def test_trainings_resume_from_their_last_intact_checkpoint(tmp_path, monkeypatch):
    processes.write_program(tmp_path / "bin/fairseq-train", PROGRAM)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=os.pathsep)
    for name, content in (("tupe_r", "whole"), ("learned", "part")):
        (tmp_path / name).mkdir()
        last = tmp_path / name / "checkpoint_last.pt"
        with zipfile.ZipFile(last, "w") as archive:
            archive.writestr("updates", "20")
        if content == "part":
            last.write_bytes(last.read_bytes()[:40])
    # A part of a line, which a killed process has left.
    (tmp_path / "tupe_r/log.txt").write_text('2026 | INFO | valid | {"valid_loss": "8.')
    words = (tmp_path, "tupe_r", "learned", "--", "data", "--max-update", "30")
    ended = processes.run("examples.quickstart.train", *words)
    assert ended.returncode == 0
    assert "\x1b" not in ended.stdout
    for name, first, done in (("tupe_r", 20, [30]), ("learned", 0, [10, 20, 30])):
        log = tmp_path / name / "log.txt"
        assert f"threads 1 from {first}" in log.read_text()
        assert [*validations(log)] == done
        assert f"--position-encoding {name} --save-dir {tmp_path}/{name}\n" in ended.stdout
        for n in done:
            line = f"   {name}: {n} of 30 updates, {9 - n / 100:.2f} bits per masked token\n"
            assert ended.stdout.count(line) == 1
