"""Steps of scripts: done once, resumed, and ended in one line."""

import subprocess
import sys
import zipfile
from pathlib import Path
from subprocess import CompletedProcess

from tests import ROOT
from tests.processes import write_program

STEPS = """
first() {{ echo {text} >"$out/file"; echo first >>ran; {then}; }}
second() {{ cp $work/first/file "$out/"; echo second >>ran; }}
mkdir -p $work
step first "First"
step second "Second"
"""


def bash(
    folder: Path, script: str, programs: Path = Path(sys.executable).parent
) -> CompletedProcess:
    path = {"PATH": f"{programs}:/usr/bin:/bin"}
    words = ["bash", "-c", f"set -euo pipefail; source {ROOT}/scripts/steps.sh\n{script}"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, env=path)


def run_steps(folder: Path, text: str = "a", then: str = "true") -> tuple[int, list[str]]:
    """Exit status, and which steps ran."""
    (folder / "ran").write_text("")
    ended = bash(folder, STEPS.format(text=text, then=then))
    return ended.returncode, (folder / "ran").read_text().split()


def test_steps_are_done_once_and_again_when_they_change(tmp_path):
    assert run_steps(tmp_path) == (0, ["first", "second"])
    assert run_steps(tmp_path) == (0, [])
    assert run_steps(tmp_path, text="b") == (0, ["first", "second"])
    assert (tmp_path / ".quickstart/second/file").read_text() == "b\n"


def test_a_step_that_was_cut_off_is_not_taken_for_done(tmp_path):
    status, ran = run_steps(tmp_path, then="kill -9 $$")
    assert (status, ran) == (-9, ["first"])
    assert not (tmp_path / ".quickstart/first").exists()
    assert run_steps(tmp_path) == (0, ["first", "second"])


def test_a_failing_command_ends_the_steps_in_one_line(tmp_path):
    ended = bash(tmp_path, STEPS.format(text="a", then="run ls --no-such-option"))
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith("error: ls exited with status ")
    assert line.endswith("(log: .quickstart/logs/first.log)")


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / ".quickstart").write_text("a file in its place")
    ended = bash(tmp_path, "lock_work")
    assert ended.returncode == 1
    assert ended.stderr == "error: cannot write in .quickstart.\n"


# ---------------------------------------------------------------- steps that train


TRAIN = """
train() {{ repair_checkpoints "$out"; ls "$out" >>ran; {then}; : {command}; }}
mkdir -p $work
step --resumable train "Train"
"""


def run_training(folder: Path, command: str, then: str = "true") -> list[str]:
    """The files a resumable step found, in this call and in those before."""
    bash(folder, TRAIN.format(command=command, then=then))
    return (folder / "ran").read_text().split()


def test_training_goes_on_from_the_last_intact_checkpoint(tmp_path):
    """Unless its command has changed, as this step's has in the end."""
    with zipfile.ZipFile(tmp_path / "done.zip", "w") as archive:
        archive.writestr("data", "weights")
    part = "head -c 50 done.zip >$out/checkpoint_last.pt"
    kill = f"cp done.zip $out/checkpoint_1_100.pt; {part}; kill -9 $$"
    assert run_training(tmp_path, "--lr 1", kill) == []
    found = run_training(tmp_path, "--lr 1", kill)
    assert found == ["checkpoint_1_100.pt", "checkpoint_last.pt"]
    assert run_training(tmp_path, "--lr 2") == found


def test_no_checkpoint_is_removed_where_none_can_be_judged(tmp_path):
    (tmp_path / "checkpoint_last.pt").write_bytes(b"damaged")
    write_program(tmp_path / "bin/python", "kill -9 $$")
    ended = bash(tmp_path, "repair_checkpoints .", tmp_path / "bin")
    assert ended.returncode == 1
    told = "error: cannot repair the checkpoints in . (python exited with status 137).\n"
    assert ended.stderr.endswith(told)
    assert (tmp_path / "checkpoint_last.pt").exists()
