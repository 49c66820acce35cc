"""Files of a model directory of transformers: config.json and model.safetensors."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ..errors import CheckpointError
from ..extras import import_extra

FILE, INDEX = "model.safetensors", "model.safetensors.index.json"


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        CheckpointError: the file cannot be read, or is not a JSON object.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}.") from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} is not a JSON object.")
    return found


def write_json(path: Path, contents: Mapping[str, Any]) -> None:
    """Write a JSON object."""
    path.write_text(json.dumps(contents, indent=2) + "\n", encoding="utf-8")


def read_parameters(folder: Path) -> dict[str, Tensor]:
    """Read the parameters of a directory by name, from one file or from those of its index.

    Raises:
        UsageError: `safetensors` is not installed.
        CheckpointError: a file is missing or damaged.
    """
    names = {FILE}
    if (folder / INDEX).is_file():
        files = read_json(folder / INDEX).get("weight_map")
        if not isinstance(files, dict):
            raise CheckpointError(f"{folder / INDEX} has no weight_map.")
        # An index cannot name files of other folders.
        names = {Path(str(file)).name for file in files.values()}
    tensors: dict[str, Tensor] = {}
    for name in sorted(names):
        tensors |= read_tensors(folder / name)
    return tensors


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read tensors by name from a safetensors file; errors as `read_parameters`."""
    library = import_extra("safetensors.torch", "hf")
    try:
        return library.torch.load_file(str(path))
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}.") from error
    except (library.SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path} cannot be loaded as safetensors: {error}.") from error


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors by name; a tensor with two names is written twice.

    Raises:
        UsageError: `safetensors` is not installed.
        OSError: the file cannot be written.
    """
    library = import_extra("safetensors.torch", "hf")
    copies = {name: value.contiguous().clone() for name, value in tensors.items()}
    try:
        library.torch.save_file(copies, str(path), metadata={"format": "pt"})
    except library.SafetensorError as error:
        raise OSError(str(error)) from error
