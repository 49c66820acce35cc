"""Steps of scripts: done once, resumed, and ended in one line."""

import subprocess
from pathlib import Path

from tests import ROOT

STEPS = """
set -euo pipefail
source {root}/scripts/steps.sh
first() {{ echo {text} >"$out/file"; echo first >>ran; {then}; }}
second() {{ cp $work/first/file "$out/"; echo second >>ran; }}
mkdir -p $work
step first "First"
step second "Second"
"""


def run_steps(folder: Path, text: str = "a", then: str = "true") -> tuple[int, list[str]]:
    """Exit status, and which steps ran."""
    (folder / "ran").write_text("")
    script = STEPS.format(root=ROOT, text=text, then=then)
    ended = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, check=False)
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
    script = STEPS.format(root=ROOT, text="a", then="run ls --no-such-option")
    ended = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith("error: ls exited with status ")
    assert line.endswith("(log: .quickstart/logs/first.log)")


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / ".quickstart").write_text("a file in its place")
    script = STEPS.format(root=ROOT, text="a", then="true").partition("mkdir")[0] + "lock_work\n"
    ended = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr == "error: cannot write in .quickstart.\n"
