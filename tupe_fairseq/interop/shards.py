"""Files of a directory of transformers: the parameters, and the dictionary with them."""

from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from ..errors import CheckpointError
from .dictionaries import Entry, check_size, read_dictionary
from .model_files import read_config, read_tensors

FILE, INDEX = "model.safetensors", "model.safetensors.index.json"


class Contents(NamedTuple):
    """What `read_directory` found.

    Attributes:
        tensors: all parameters by name.
        words: the token embeddings, V×C, one of them.
        entries: the dictionary.
    """

    tensors: dict[str, Tensor]
    words: Tensor
    entries: list[Entry]


def read_directory(
    folder: Path, dictionary: str | Path | None, words: str, adds_mask: bool = True
) -> Contents:
    """Read parameters and dictionary of a directory, and compare their sizes.

    Args:
        folder: the directory.
        dictionary: dict.txt in the order of its ids; default: the one in the directory.
        words: name of the token embeddings.
        adds_mask: whether `<mask>` follows the dictionary.

    Raises:
        UsageError: a file is missing or damaged, or they do not belong together.
    """
    tensors = read_shards(folder)
    found = tensors.get(words)
    if found is None or found.dim() != 2:
        raise CheckpointError(f"{folder} has no token embeddings ({words}).")
    path = Path(dictionary or folder / "dict.txt")
    entries = read_dictionary(path)
    check_size(entries, len(found), path, adds_mask)
    return Contents(tensors, found, entries)


def read_shards(folder: Path) -> dict[str, Tensor]:
    """Read the parameters of a directory by name.

    Raises:
        CheckpointError: a file is missing or damaged, or the index names a file elsewhere.
    """
    if not (folder / INDEX).is_file():
        return read_tensors(folder / FILE)
    index = read_config(folder / INDEX).get("weight_map")
    names: set[Any] = set(index.values()) if isinstance(index, dict) else {None}
    if not all(isinstance(name, str) and Path(name).name == name for name in names):
        raise CheckpointError(f"{folder / INDEX} does not name files of its folder.")
    tensors: dict[str, Tensor] = {}
    for name in sorted(names):
        tensors |= read_tensors(folder / name)
    return tensors
