"""Names of classes in a directory of this package: label/dict.txt, as fairseq has them."""

from pathlib import Path

from .dictionaries import dictionary_of, dictionary_text, read_labels
from .kept import read_kept

#: In transformers.json: names that no line of a dictionary can hold, as those with a line break.
NAMES = "names_of_classes"


def label_files(labels: list[str]) -> tuple[bytes, list[str]]:
    """Contents of label/dict.txt, and the names for transformers.json; empty: the file has all."""
    exact = [] if {"\n", "\r"}.isdisjoint("".join(labels)) else labels
    lines = map(_in_one_line, labels) if exact else labels
    return dictionary_text(dictionary_of(lines)), exact


def labels_beside(dictionary: Path, folder: Path) -> list[str]:
    """Names of classes by number, from the files that `read_labels` names; empty: not known.

    Raises:
        UsageError: a file cannot be read.
    """
    names, exact = read_labels(dictionary, folder), read_kept(folder).get(NAMES)
    # Others than the file's belong to an older one.
    if isinstance(exact, list) and [_in_one_line(str(name)) for name in exact] == names:
        return [str(name) for name in exact]
    return names


def _in_one_line(name: str) -> str:
    return " ".join(name.split())
