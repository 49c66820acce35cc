"""dict.txt: one token and its count per line; a token's id follows from its line."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ..errors import DataError

#: Ids 0 to 3 of every fairseq dictionary, which dict.txt leaves out.
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"
#: At the end of a line, makes fairseq accept a repeated token; both lines keep their id.
OVERWRITE = "#fairseq:overwrite"


class Entry(NamedTuple):
    """A line of dict.txt."""

    token: str
    occurrences: int


def read_dictionary(path: str | Path) -> list[Entry]:
    """Read dict.txt.

    Raises:
        DataError: the file cannot be read or has another form; the message names file and line.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not a dictionary: it is not UTF-8 text.") from error
    except OSError as error:
        raise DataError(f"cannot read the dictionary {path}: {error.strerror}.") from error
    return [_parse(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]


def _parse(line: str, where: str) -> Entry:
    token, space, count = line.rstrip().removesuffix(f" {OVERWRITE}").rpartition(" ")
    if not space or not (count.isascii() and count.removeprefix("-").isdigit()):
        raise DataError(f"{where}: {line.rstrip()[:40]!r} is not a token and its count.")
    return Entry(token, int(count[:18]))


def dictionary_text(entries: Iterable[Entry]) -> str:
    """Contents of dict.txt; repeated tokens are marked, so that every entry keeps its id."""
    seen = set(SPECIAL)
    lines = []
    for token, count in entries:
        again = f" {OVERWRITE}" if token in seen else ""
        seen.add(token)
        lines.append(f"{token} {count}{again}\n")
    return "".join(lines)


def check_size(entries: list[Entry], rows: int, path: str | Path, adds_mask: bool = True) -> None:
    """Compare the number of symbols with the rows of the token embeddings.

    If `adds_mask`, fairseq's task appends `<mask>` to a dict.txt that lacks it.

    Raises:
        DataError: the numbers differ.
    """
    has_mask = any(entry.token == MASK for entry in entries)
    symbols = len(SPECIAL) + len(entries) + (adds_mask and not has_mask)
    if symbols != rows:
        raise DataError(
            f"{path} has {symbols} symbols, but the checkpoint has embeddings for {rows}: use the "
            "dict.txt that the checkpoint was trained with."
        )
