"""Files of tensors that hold nothing else: safetensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ..errors import UsageError


def write_tensors(path: str | Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors by name; two names of one tensor become two copies.

    Raises:
        UsageError: `safetensors` is not installed.
        OSError: the file cannot be written.
    """
    library = _library()
    copies = {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}
    try:
        library.torch.save_file(copies, str(path), metadata={"format": "pt"})
    except library.SafetensorError as error:
        raise OSError(str(error)) from error


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """Read tensors by name.

    Raises:
        UsageError: `safetensors` is not installed, or the file is not there or damaged.
    """
    library = _library()
    try:
        return library.torch.load_file(str(path))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}.") from error
    except (library.SafetensorError, ValueError, KeyError) as error:
        raise UsageError(f"{path} is no safetensors file, or is damaged: {error}.") from error


def _library() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise UsageError(
            "this needs safetensors, which is not installed: pip install 'tupe_fairseq[hf]'"
        ) from error
    return safetensors
