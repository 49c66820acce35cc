"""What `save_pretrained` of transformers has written: config.json and parameters."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..checkpoints.torch_files import read_file
from ..errors import CheckpointError
from ..extras import import_extra
from .architectures import ARCHITECTURES, Architecture
from .classes import library

#: Names of files of parameters, the preferred first: whole or in parts, and those of before 2023.
FILES = (
    *("model.safetensors", "model-*-of-*.safetensors"),
    *("pytorch_model.bin", "pytorch_model-*-of-*.bin"),
)


def read_config(folder: Path) -> tuple[Any, Architecture]:
    """The configuration of a directory, and the table of its models.

    Raises:
        UsageError: config.json cannot be read, or is of other models.
    """
    path, auto = folder / "config.json", library().AutoConfig
    if not path.is_file():
        raise CheckpointError(
            f"there is no {path}: give a folder that save_pretrained of transformers has written."
        )
    try:
        config = auto.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
    # transformers raises errors of any type.
    except Exception as error:
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise CheckpointError(f"{path} cannot be read: {reason}.") from error
    kind, causal = config.model_type, bool(getattr(config, "is_decoder", False))
    of_kind = [a for a in ARCHITECTURES if (a.model_type, a.is_causal) == (kind, causal)]
    if not of_kind:
        known = dict.fromkeys(each.model_type for each in ARCHITECTURES)
        raise CheckpointError(
            f"{path} has the model_type {kind!r} and is_decoder {causal}; supported are: "
            f"{', '.join(known)}."
        )
    (architecture,) = of_kind
    for name, value in architecture.required.items():
        if (actual := getattr(config, name, value)) != value:
            raise CheckpointError(
                f"unsupported {name} in {path}: {actual!r}; it must be {value!r}."
            )
    return config, architecture


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """The parameters of a directory in fp32, from one file or from its parts.

    Raises:
        UsageError: `safetensors` is not installed; a file is missing or damaged.
    """
    found = (sorted(folder.glob(pattern)) for pattern in FILES)
    if not (paths := next(filter(None, found), [])):
        raise CheckpointError(
            f"{folder} has neither model.safetensors nor pytorch_model.bin: give a folder that "
            "save_pretrained of transformers has written."
        )
    tensors: dict[str, Tensor] = {}
    for path in paths:
        tensors |= _read_bin(path) if path.suffix == ".bin" else _read_safetensors(path)
    # fairseq trains on parameters in fp32.
    return {_renamed(k): v.float() if v.is_floating_point() else v for k, v in tensors.items()}


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    safetensors = import_extra("safetensors.torch", "hf")
    try:
        return safetensors.torch.load_file(str(path))
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}.") from error
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path} cannot be loaded as safetensors: {error}.") from error


def _read_bin(path: Path) -> dict[str, Tensor]:
    tensors = read_file(path)
    if not isinstance(tensors, dict) or not all(map(torch.is_tensor, tensors.values())):
        raise CheckpointError(f"{path} cannot be loaded: it is not a table of parameters.")
    return tensors


def _renamed(name: str) -> str:
    """Today's name of a parameter; in the first files of BERT, LayerNorms have TensorFlow's."""
    stem, mark, last = name.rpartition("LayerNorm.")
    return stem + mark + {"gamma": "weight", "beta": "bias"}.get(last, last) if mark else name
