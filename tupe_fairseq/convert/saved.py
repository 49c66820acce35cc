"""What `save_pretrained` of transformers has written: config.json and parameters."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..base.errors import CheckpointError
from ..base.extras import import_extra
from ..fairseq.checkpoints.torch_files import read_file
from .architectures import ARCHITECTURES, Architecture
from .classes import library

#: Files of parameters in the order in which transformers looks for them: whole, or the index of
#: their parts. The last two are those of before 2023.
FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
ADAPTER = "adapter_config.json"
#: How the file begins that Git LFS leaves in place of a large one.
POINTER = b"version https://git-lfs"
SAVED = "give a folder that save_pretrained of transformers has written"


@dataclass(frozen=True)
class Parameters:
    """The parameters of a directory, in fp32.

    Attributes:
        tensors: by their names there.
        path: the file that holds them, or the index of its parts.
    """

    tensors: dict[str, Tensor]
    path: Path


def read_config(folder: Path) -> tuple[Any, Architecture]:
    """The configuration of a directory, and the table of its models.

    Raises:
        UsageError: config.json cannot be read, or is of other models.
    """
    path = folder / "config.json"
    _check_folder(folder, path)
    try:
        config = library().AutoConfig.from_pretrained(
            str(folder), trust_remote_code=False, local_files_only=True
        )
    # transformers raises errors of any type.
    except Exception as error:
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise CheckpointError(f"{path} cannot be read: {reason}.") from error
    if getattr(config, "quantization_config", None):
        raise CheckpointError(
            f"unsupported quantization_config in {path}: save the model in fp32, bf16 or fp16."
        )
    architecture = _architecture(config, path)
    for name, value in architecture.required.items():
        actual = getattr(config, name, value)
        if actual != value:
            raise CheckpointError(
                f"unsupported {name} in {path}: {actual!r}; it must be {value!r}."
            )
    return config, architecture


def _check_folder(folder: Path, config: Path) -> None:
    """Whether a folder holds one whole model."""
    if (folder / ADAPTER).is_file():
        raise CheckpointError(
            f"{folder} holds an adapter of peft ({ADAPTER}): merge it into its model by "
            "merge_and_unload, and save that."
        )
    if config.is_file():
        return
    # Where sentence-transformers once put the model.
    if inner := sorted(folder.glob("0_*/config.json")):
        raise CheckpointError(f"there is no {config}: give the folder {inner[0].parent}.")
    raise CheckpointError(f"there is no {config}: {SAVED}.")


def _architecture(config: Any, path: Path) -> Architecture:
    known = {each.model_type: each for each in ARCHITECTURES}
    if config.model_type not in known:
        raise CheckpointError(
            f"{path} has the model_type {config.model_type!r}; supported are: {', '.join(known)}."
        )
    if getattr(config, "is_decoder", False):
        raise CheckpointError(
            f"unsupported is_decoder in {path}: True; it must be False. The last version that "
            "converts language models of this package is tupe_fairseq 0.3.0."
        )
    return known[config.model_type]


def read_parameters(folder: Path) -> Parameters:
    """Read the parameters of a directory from the files that transformers takes.

    Raises:
        UsageError: `safetensors` is not installed; a file is missing or damaged, or is not what
            the index says.
    """
    paths = (folder / name for name in FILES)
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise CheckpointError(f"{folder} has neither {' nor '.join(FILES)}: {SAVED}.")
    tensors = _read_parts(path) if path.suffix == ".json" else _read(path)
    # fairseq trains on parameters in fp32.
    floats = {name: v.float() if v.is_floating_point() else v for name, v in tensors.items()}
    return Parameters({_renamed(name): value for name, value in floats.items()}, path)


def _read_parts(index: Path) -> dict[str, Tensor]:
    """The parameters that an index names, from the files that it names."""
    try:
        files: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        names = sorted(set(files.values()))
        outside = [name for name in names if Path(name).name != name]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{index} cannot be read: {error!r}.") from error
    if outside:
        raise CheckpointError(f"{index} names {outside[0]!r}, which is not a file beside it.")
    tensors: dict[str, Tensor] = {}
    for name in names:
        part = _read(index.with_name(name))
        if twice := sorted(tensors.keys() & part.keys()):
            raise CheckpointError(
                f"{twice[0]} stands in {files.get(twice[0])} and in another part, {name}: remove "
                "the parts of another model, and save this one again."
            )
        tensors |= part
    if lacking := sorted(files.keys() - tensors.keys()):
        raise CheckpointError(
            f"{index} says that {lacking[0]} is in {files[lacking[0]]}, which does not have it "
            f"({len(lacking)} of {len(files)} parameters are missing)."
        )
    return tensors


def _read(path: Path) -> dict[str, Tensor]:
    try:
        with open(path, "rb") as file:
            begin = file.read(len(POINTER))
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}.") from error
    if begin == POINTER:
        raise CheckpointError(
            f"{path} is a pointer of Git LFS, not the file itself: run git lfs pull."
        )
    return _read_bin(path) if path.suffix == ".bin" else _read_safetensors(path)


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
