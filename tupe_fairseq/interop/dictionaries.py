"""Dictionaries as text: one word and its count a line; a word's id is its place in the file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ..errors import UsageError

#: Ids 0 to 3 of every fairseq dictionary; dict.txt does not hold them.
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"
#: With this at its end, fairseq takes a line whose word it has seen; both keep an id.
OVERWRITE = "#fairseq:overwrite"
#: A longer line belongs to no dictionary, and is not read to its end.
LONGEST_LINE = 1 << 16


class Entry(NamedTuple):
    """A line of dict.txt."""

    word: str
    count: int


def read_dictionary(path: str | Path) -> list[Entry]:
    """Read dict.txt.

    Raises:
        UsageError: not there, or not of that form; the message names file and line.
    """
    entries = []
    try:
        with open(path, encoding="utf-8") as file:
            while line := file.readline(LONGEST_LINE):
                entries.append(_parse(line, f"{path}, line {len(entries) + 1}"))
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no dictionary: it is not UTF-8 text.") from error
    except OSError as error:
        raise UsageError(f"cannot read the dictionary {path}: {error.strerror}.") from error
    if not entries:
        raise UsageError(f"{path} is no dictionary: it is empty.")
    return entries


def _parse(line: str, where: str) -> Entry:
    if not line.endswith("\n") and len(line) == LONGEST_LINE:
        raise UsageError(f"{where}: longer than {LONGEST_LINE} characters; this is no dictionary.")
    word, space, count = line.rstrip().removesuffix(f" {OVERWRITE}").rpartition(" ")
    if not space or not (count.isascii() and count.removeprefix("-").isdigit()):
        raise UsageError(
            f"{where}: {line.rstrip()[:40]!r}, but a dictionary holds a word and its count."
        )
    return Entry(word, int(count[:18]))


def dictionary_text(entries: Iterable[Entry]) -> str:
    """dict.txt, in which every entry keeps its place: fairseq is told which words come again."""
    seen = set(SPECIAL)
    lines = []
    for word, count in entries:
        again = f" {OVERWRITE}" if word in seen else ""
        seen.add(word)
        lines.append(f"{word} {count}{again}\n")
    return "".join(lines)


def check_size(entries: list[Entry], rows: int, path: str | Path) -> None:
    """Compare with the word embeddings, one row a symbol.

    fairseq's tasks append `<mask>` where dict.txt does not hold it.

    Raises:
        UsageError: another number.
    """
    words = {word for word, _ in entries}
    symbols = len(SPECIAL) + len(entries) + (MASK not in words)
    if symbols != rows:
        raise UsageError(
            f"{path} gives {symbols} symbols, but the checkpoint has embeddings for {rows}: give "
            "the dict.txt that it was trained with."
        )
