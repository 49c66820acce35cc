"""Text and a vocabulary for the examples."""

import json
import random
from pathlib import Path

import pytest
from fairseq.data.encoders.gpt2_bpe_utils import bytes_to_unicode

WORDS = ("the", "cat", "sat", "on", "a", "mat", "and", "saw", "another", "that", "there", "too")


def sentences(count: int) -> list[str]:
    rng = random.Random(0)
    return [" ".join(rng.choices(WORDS, k=8)) for _ in range(count)]


@pytest.fixture
def text(tmp_path) -> Path:
    folder = tmp_path / "text"
    folder.mkdir()
    (folder / "train.txt").write_text("".join(f"{line}\n" for line in sentences(300)))
    (folder / "valid.txt").write_text("the cat sat\na märchen cat\n")
    return folder


@pytest.fixture
def gpt2(tmp_path) -> Path:
    """A vocabulary in GPT-2's form: all bytes and two merges."""
    folder = tmp_path / "gpt2"
    folder.mkdir()
    symbols = [*bytes_to_unicode().values(), "ca", "cat"]
    (folder / "encoder.json").write_text(json.dumps({s: i for i, s in enumerate(symbols)}))
    (folder / "vocab.bpe").write_text("#version: 0.2\nc a\nca t\n")
    return folder
