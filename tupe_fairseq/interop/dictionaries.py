"""dict.txt: one word and its count per line; a word's id follows from its line."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ..errors import DataError

#: Ids 0 to 3 of every fairseq dictionary, which dict.txt leaves out.
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"
#: At the end of a line, makes fairseq accept a repeated word; both lines keep their id.
OVERWRITE = "#fairseq:overwrite"
#: Readers limit the length of a line, in characters.
LONGEST_LINE = 1 << 16


class Entry(NamedTuple):
    """A line of dict.txt."""

    word: str
    occurrences: int


def read_dictionary(path: str | Path) -> list[Entry]:
    """Read dict.txt.

    Raises:
        DataError: the file cannot be read or has another form; the message names file and line.
    """
    entries: list[Entry] = []
    try:
        with open(path, encoding="utf-8") as file:
            while line := file.readline(LONGEST_LINE):
                entries.append(_parse(line, f"{path}, line {len(entries) + 1}"))
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not a dictionary: it is not UTF-8 text.") from error
    except OSError as error:
        raise DataError(f"cannot read the dictionary {path}: {error.strerror}.") from error
    if not entries:
        raise DataError(f"{path} is not a dictionary: it is empty.")
    return entries


def _parse(line: str, where: str) -> Entry:
    if not line.endswith("\n") and len(line) == LONGEST_LINE:
        raise DataError(f"{where}: longer than {LONGEST_LINE} characters, so not a dictionary.")
    word, space, count = line.rstrip().removesuffix(f" {OVERWRITE}").rpartition(" ")
    if not space or not (count.isascii() and count.removeprefix("-").isdigit()):
        raise DataError(f"{where}: {line.rstrip()[:40]!r} is not a word and its count.")
    return Entry(word, int(count[:18]))


def dictionary_text(entries: Iterable[Entry]) -> str:
    """Contents of dict.txt; repeated words are marked, so that every entry keeps its id."""
    seen = set(SPECIAL)
    lines = []
    for word, count in entries:
        again = f" {OVERWRITE}" if word in seen else ""
        seen.add(word)
        lines.append(f"{word} {count}{again}\n")
    return "".join(lines)


def check_size(entries: list[Entry], rows: int, path: str | Path, adds_mask: bool = True) -> None:
    """Compare the number of symbols with the rows of the word embeddings.

    Args:
        entries: the dictionary.
        rows: of the word embeddings.
        path: of the dictionary, for the message.
        adds_mask: the task appends `<mask>` if dict.txt does not contain it.

    Raises:
        DataError: the numbers differ.
    """
    words = {word for word, _ in entries}
    symbols = len(SPECIAL) + len(entries) + (adds_mask and MASK not in words)
    if symbols != rows:
        raise DataError(
            f"{path} has {symbols} symbols, but the checkpoint has embeddings for {rows}: use the "
            "dict.txt that the checkpoint was trained with."
        )
