"""Every command that reads a text file reads the same lines of it, and names a damaged one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from examples.glue.readers import read_rows
from examples.quickstart import own_text
from examples.study import blimp
from examples.translation import prepare
from tupe_fairseq import UsageError
from tupe_fairseq.transplant import texts


def pair(text: str) -> str:
    """BLiMP's form of a sentence and another one."""
    names = ("UID", "linguistics_term", "sentence_good", "sentence_bad")
    return json.dumps(dict(zip(names, ("a", "binding", text, "b"), strict=True)))


class Door(NamedTuple):
    """A reader: from a file to texts; how a text is written; and lines before the first."""

    read: Callable[[Path], list[str]]
    row: Callable[[str], str] = str
    head: tuple[str, ...] = ()


def benchmarked(path: Path) -> list[str]:
    from benchmarking.encoders import read_texts

    return read_texts(path)


def rated(path: Path) -> list[str]:
    from benchmarking.encoders import read_sts_b

    path.rename(path.with_name("dev.tsv"))
    return read_sts_b(path.parent)[0]


HEADER = "sentence1\tsentence2\tscore"
DOORS = {
    "GLUE": Door(lambda path: [row["a"] for row in read_rows(path, "a\tb")], "{}\tx".format),
    "transplant": Door(lambda path: texts.read_lines(path, 1 << 20)),
    "quickstart": Door(own_text.read),
    "translation": Door(lambda path: prepare.read_lines(path.parent, path.name)),
    "BLiMP": Door(lambda path: [each.good for each in blimp.read_pairs(path, 5000)], pair),
    "benchmark": Door(benchmarked),
    "STS-B": Door(rated, "{}\tx\t1.5".format, (HEADER,)),
}
#: The first has a letter of two bytes, and others what Python or csv would take for line ends.
TEXTS = [
    "é first",
    'a "quoted',
    "in\x0b\x0ca\u2028line",
    "a\rreturn",
    *map("text {}".format, range(1100)),
]


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    from tests import ROOT

    monkeypatch.syspath_prepend(ROOT / "scripts")


def words(found: list[str]) -> list[str]:
    """Some commands make single spaces, and lower case."""
    return [" ".join(text.lower().split()) for text in found]


@pytest.mark.parametrize("name", DOORS)
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "mark"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_lines(name, mark, end, tmp_path):
    """As Windows' programs write them; nothing depends on the locale."""
    door = DOORS[name]
    lines = [*door.head, *map(door.row, TEXTS)]
    (tmp_path / "text").write_bytes((mark + end.join(lines) + end).encode())
    assert words(door.read(tmp_path / "text")) == words(TEXTS)


@pytest.mark.parametrize("name", DOORS)
def test_a_line_that_is_not_utf8(name, tmp_path):
    door = DOORS[name]
    lines = [
        *door.head,
        *map(door.row, TEXTS[:700]),
        door.row("caf@"),
        *map(door.row, TEXTS[700:]),
    ]
    contents = "\n".join(lines).encode().replace(b"caf@", b"caf\xe9")
    (tmp_path / "text").write_bytes(contents)
    number = len(door.head) + 701
    with pytest.raises(UsageError, match=rf"line {number} is not UTF-8, byte 0xe9 at \d+") as told:
        door.read(tmp_path / "text")
    assert str(tmp_path) in str(told.value)
    assert "\n" not in str(told.value)
