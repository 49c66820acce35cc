"""Parameters of a directory of transformers: one safetensors file, or several with an index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from ..errors import CheckpointError
from ..standalone.files import LONGEST_CONFIG, read_config, read_tensors

FILE, INDEX = "model.safetensors", "model.safetensors.index.json"


def read_shards(folder: Path) -> dict[str, Tensor]:
    """Read the parameters of a directory by name.

    Raises:
        CheckpointError: a file is missing or damaged, or the index names a file elsewhere.
    """
    if not (folder / INDEX).is_file():
        return read_tensors(folder / FILE)
    index = read_config(folder / INDEX, longest=64 * LONGEST_CONFIG).get("weight_map")
    names: set[Any] = set(index.values()) if isinstance(index, dict) else {None}
    if not all(isinstance(name, str) and Path(name).name == name for name in names):
        raise CheckpointError(f"{folder / INDEX} does not name files of its folder.")
    tensors: dict[str, Tensor] = {}
    for name in sorted(names):
        tensors |= read_tensors(folder / name)
    return tensors
