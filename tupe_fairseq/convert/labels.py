"""Names of classes: in label/dict.txt for fairseq, and in configurations of transformers."""

from pathlib import Path
from typing import Any

from .kept import read_kept

#: In transformers.json: names that no line of a dictionary can hold, as those with a line break.
NAMES = "names_of_classes"


def label_files(labels: list[str]) -> tuple[bytes, list[str]]:
    """Contents of label/dict.txt, and the names for transformers.json; empty: the file has all."""
    # Dictionaries need fairseq; conversions among the formats of transformers do not.
    from .dictionaries import dictionary_of, dictionary_text

    exact = [] if {"\n", "\r"}.isdisjoint("".join(labels)) else labels
    lines = map(_in_one_line, labels) if exact else labels
    return dictionary_text(dictionary_of(lines)), exact


def labels_beside(dictionary: Path, folder: Path) -> list[str]:
    """Names of classes by number, from the files that `read_labels` names; empty: not known.

    Raises:
        UsageError: a file cannot be read.
    """
    from .dictionaries import read_labels

    names = read_labels(dictionary, folder)
    exact = read_kept(folder).get(NAMES)
    # Others than the file's belong to an older one.
    if isinstance(exact, list) and [_in_one_line(str(name)) for name in exact] == names:
        return [str(name) for name in exact]
    return names


def label_settings(labels: list[str]) -> dict[str, Any]:
    """The names as settings of a configuration of transformers."""
    return {
        "id2label": dict(enumerate(labels)),
        "label2id": {name: number for number, name in enumerate(labels)},
    }


def labels_of(config: Any, count: int) -> list[str]:
    """Names of classes by number, from a configuration of transformers."""
    return [str(config.id2label.get(number, f"LABEL_{number}")) for number in range(count)]


def _in_one_line(name: str) -> str:
    return " ".join(name.split())
