"""dict.txt: one token and its count per line; a token's id follows from its line."""

import re
from collections.abc import Iterable
from pathlib import Path

from fairseq.data import Dictionary

from ..checks import read_dictionary
from ..errors import DataError

#: Ids 0 to 3 of every fairseq dictionary, which dict.txt leaves out.
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"
#: At the end of a line, makes fairseq accept a repeated token; both lines keep their id.
OVERWRITE = "#fairseq:overwrite"
#: Names of classes, in folders of data and of fine-tuned models.
LABELS = "label/dict.txt"
#: Symbols that fairseq-preprocess adds to round the size.
FILLER = r"madeupword\d{4}"


def dictionary_of(tokens: Iterable[str], counts: Iterable[int] | None = None) -> Dictionary:
    """A dictionary of the special symbols and these tokens; repeated ones have several ids."""
    tokens = list(tokens)
    dictionary = Dictionary()
    for token, count in zip(tokens, counts or [1] * len(tokens), strict=True):
        dictionary.add_symbol(token, count, overwrite=True)
    return dictionary


def dictionary_text(dictionary: Dictionary) -> str:
    """Contents of dict.txt; repeated tokens are marked, so that every token keeps its id."""
    seen, lines, first = set(SPECIAL), [], dictionary.nspecial
    for token, count in zip(dictionary.symbols[first:], dictionary.count[first:], strict=True):
        again = f" {OVERWRITE}" if token in seen else ""
        seen.add(token)
        lines.append(f"{token} {count}{again}\n")
    return "".join(lines)


def check_size(dictionary: Dictionary, rows: int, path: str | Path, adds_mask: bool) -> None:
    """Compare the number of symbols with the rows of the token embeddings.

    If `adds_mask`, fairseq's task appends `<mask>` to a dict.txt that lacks it.

    Raises:
        DataError: the numbers differ.
    """
    symbols = len(dictionary) + (adds_mask and MASK not in dictionary)
    if symbols != rows:
        raise DataError(
            f"{path} has {symbols} symbols, but the checkpoint has embeddings for {rows}: use the "
            "dict.txt that the checkpoint was trained with."
        )


def read_labels(dictionary: Path, folder: Path) -> list[str]:
    """Names of classes by number, from the label/dict.txt of the first of these that has one.

    Args:
        dictionary: path of the model's dict.txt, which data has in input0/.
        folder: of the checkpoint.

    Raises:
        UsageError: it cannot be read.
    """
    data = dictionary.parent
    for place in (folder, data.parent if data.name == "input0" else data):
        if (path := place / LABELS).is_file():
            found = read_dictionary(path)
            names = found.symbols[found.nspecial :]
            return [name for name in names if not re.fullmatch(FILLER, name)]
    return []
