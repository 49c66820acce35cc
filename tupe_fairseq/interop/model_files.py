"""Files of a model directory of transformers: config.json and model.safetensors."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ..checkpoints.mismatch import differences
from ..errors import CheckpointError
from ..extras import import_extra

#: Most characters of a JSON file that are read.
LONGEST_CONFIG = 1 << 22


def read_config(path: str | Path) -> dict[str, Any]:
    """Read config.json.

    Args:
        path: of the file.

    Raises:
        CheckpointError: the file cannot be read, is too long, or is not a JSON object.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(LONGEST_CONFIG + 1)
        if len(text) > LONGEST_CONFIG:
            raise CheckpointError(f"{path} has more than {LONGEST_CONFIG:,} characters.")
        config = json.loads(text)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}.") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{path} is not a JSON object.")
    return config


def write_config(path: str | Path, config: Mapping[str, Any]) -> None:
    """Write config.json.

    Raises:
        OSError: the file cannot be written.
    """
    Path(path).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """Read tensors by name from a safetensors file.

    Raises:
        UsageError: `safetensors` is not installed.
        CheckpointError: the file cannot be read.
    """
    library = import_extra("safetensors.torch", "hf")
    try:
        return library.torch.load_file(str(path))
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}.") from error
    except (library.SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path} cannot be loaded as safetensors: {error}.") from error


def write_tensors(path: str | Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors by name; a tensor with two names is written twice.

    Raises:
        UsageError: `safetensors` is not installed.
        OSError: the file cannot be written.
    """
    library = import_extra("safetensors.torch", "hf")
    copies = {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}
    try:
        library.torch.save_file(copies, str(path), metadata={"format": "pt"})
    except library.SafetensorError as error:
        raise OSError(str(error)) from error


def check_fit(
    state: Mapping[str, Tensor], expected: Mapping[str, Tensor], source: object, kind: str
) -> None:
    """Compare the names and shapes of parameters with those that a model needs.

    Args:
        state: the parameters that were read.
        expected: tensors with the names and shapes that are needed.
        source: the file, for the message.
        kind: its format, for the message.

    Raises:
        CheckpointError: parameters are missing, unknown or of another shape.
    """
    if found := differences(state, expected):
        raise CheckpointError(f"{source} is not a {kind} checkpoint; parameters: {found}.")
