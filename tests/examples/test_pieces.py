"""examples/shared/pieces.py: vocabularies of long lines, and of none."""

import random
import string

import pytest
import sentencepiece

from examples.shared import pieces
from tupe_fairseq import UsageError


def line(rng: random.Random, size: int) -> str:
    """Words of four letters; this many characters."""
    letters = rng.choices(string.ascii_lowercase, k=size)
    return "".join(" " if i % 5 == 4 else letter for i, letter in enumerate(letters))


def test_long_lines_are_read(tmp_path):
    """sentencepiece leaves out lines of more than 4,192 bytes by default."""
    rng = random.Random(0)
    lines = [line(rng, 5399) for _ in range(250)]
    assert {len(each) for each in lines} == {5399}
    (tmp_path / "text").write_text("\n".join([*lines, ""]))
    pieces.train([tmp_path / "text"], tmp_path / "model", 1000, "--size")
    assert len(pieces.load(tmp_path / "model")) == 1000


def test_characters_of_a_long_line_are_known(tmp_path):
    short = "".join(f"{line(random.Random(i), 80)}\n" for i in range(200))
    (tmp_path / "text").write_text(f"{short}{'äöü ' * 2000}\n", encoding="utf-8")
    pieces.train([tmp_path / "text"], tmp_path / "model", 40, "--size", character_coverage=1.0)
    model = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "model"))
    assert model.unk_id() not in model.encode("äöü")


def test_a_comma_in_a_path(tmp_path):
    folder = tmp_path / "a,b"
    folder.mkdir()
    (folder / "text").write_text(f"{line(random.Random(0), 3000)}\n" * 9)
    pieces.train([folder / "text"], folder / "model", 60, "--size")
    assert len(pieces.load(folder / "model")) == 60


def test_options_win(tmp_path):
    (tmp_path / "text").write_text(f"{line(random.Random(0), 5399)}\n")
    # The reason that sentencepiece gives here has no text after its condition.
    given = ([tmp_path / "text"], tmp_path / "model", 1000, "--size")
    with pytest.raises(
        UsageError, match=r"--size is 1000, but sentencepiece says: .*sentences.*empty"
    ):
        pieces.train(*given, max_sentence_length=100)
    assert not (tmp_path / "model").exists()
