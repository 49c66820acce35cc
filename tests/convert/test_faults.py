"""Conversion of files that are damaged or change, and to places that are taken."""

import subprocess
import sys
from pathlib import Path

import pytest
from fairseq.data import Dictionary
from hypothesis import given
from hypothesis import strategies as st

from tests import ROOT, processes
from tests.convert import release
from tupe_fairseq import UsageError
from tupe_fairseq.convert.command import convert
from tupe_fairseq.convert.dictionaries import dictionary_of, dictionary_text

OVERWRITTEN = """
import sys
from tupe_fairseq.convert.fairseq_models import read_state
state = read_state(sys.argv[1])
open(sys.argv[1], "wb").close()
print(sum(value.sum().item() for value in state["model"].values()))
"""


def test_a_checkpoint_may_be_overwritten_while_it_is_converted(tmp_path):
    """As training does with checkpoint_last.pt; reading a mapped file then is a bus error."""
    checkpoint = release.write(tmp_path / "release")
    (tmp_path / "program.py").write_text(OVERWRITTEN)
    ended = processes.run(tmp_path / "program.py", checkpoint)
    assert ended.returncode == 0, ended.stderr
    total = sum(value.sum().item() for value in release.state().values())
    assert float(ended.stdout) == pytest.approx(total, rel=1e-4)


def test_output_that_is_there_stays(tmp_path):
    checkpoint = release.write(tmp_path / "release")
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "mine.txt").write_text("mine")
    arguments = ["--from", "tupe-official", str(checkpoint), "--out"]
    with pytest.raises(UsageError, match="exists already; name a new directory"):
        convert([*arguments, str(tmp_path / "ours")])
    assert [path.name for path in (tmp_path / "ours").iterdir()] == ["mine.txt"]
    for folder in (checkpoint / "inside-a-file", "/proc/nowhere", "/sys/nowhere"):
        if Path(folder).parent.exists():
            with pytest.raises(UsageError, match="cannot write"):
                convert([*arguments, str(folder)])


def test_the_command_ends_in_one_line(tmp_path):
    (tmp_path / "model.pt").write_bytes(b"not a checkpoint")
    words = ("--from", "tupe-official", tmp_path / "model.pt", "--out", tmp_path / "a")
    ended = processes.run(ROOT / "scripts" / "convert_checkpoint.py", *words)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert "model.pt cannot be loaded" in last
    assert not (tmp_path / "a").exists()


def test_the_command_does_not_warn(tmp_path):
    """hydra, of which fairseq makes settings, blames a caller far up for its deprecations."""
    checkpoint = release.write(tmp_path / "release")
    words = ("--from", "tupe-official", checkpoint, "--out", tmp_path / "ours")
    command = (sys.executable, ROOT / "scripts" / "convert_checkpoint.py", *words)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_name_with_a_line_break_is_told_in_one_line(tmp_path):
    checkpoint = release.write(tmp_path / "release")
    raw = checkpoint.read_bytes()
    name = b"decoder.sentence_encoder.pos_q_linear.weight"
    assert name in raw
    checkpoint.write_bytes(raw.replace(name, name.replace(b"dec", b"de\n")))
    with pytest.raises(UsageError) as error:
        convert(["--from", "tupe-official", str(checkpoint), "--out", str(tmp_path / "ours")])
    assert "\n" not in str(error.value)
    assert r"de\noder" in str(error.value)


words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"), max_size=8)


@given(st.lists(st.tuples(words, st.integers(-9, 10**9)), min_size=1, max_size=20))
def test_dictionaries_keep_every_word_in_its_place(tmp_path_factory, pairs):
    """Whatever words: what is written is read back by fairseq."""
    path = tmp_path_factory.mktemp("d") / "dict.txt"
    path.write_bytes(dictionary_text(dictionary_of(*zip(*pairs, strict=True))))
    found = Dictionary.load(str(path))
    assert list(zip(found.symbols[4:], found.count[4:], strict=True)) == pairs
