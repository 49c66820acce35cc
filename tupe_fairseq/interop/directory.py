"""Directories that `from_pretrained` of this package's models loads: model.pt and dict.txt."""

import copy
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf
from torch import Tensor

from ..checkpoints.reading import read_checkpoint, recorded_settings
from ..checks import read_dictionary
from ..errors import CheckpointError, ConfigurationError, DataError, UsageError
from ..files import move
from ..hub.files import GPT2, PREPROCESSING, SENTENCEPIECE, find_checkpoint
from .card import training_of
from .dictionaries import LABELS, check_size, dictionary_of, dictionary_text, read_labels
from .families import family_of
from .models import Converted, arguments, sizes, with_recorded
from .sentence_transformers import carried
from .vocabularies import vocabulary_beside

#: Settings of the source without a counterpart here.
KEPT = "transformers.json"


def read_source(
    checkpoint: str | Path, dictionary: str | Path | None
) -> tuple[dict[str, Any], Dictionary, Path]:
    """Read a fairseq checkpoint and its dictionary, by default the dict.txt beside it.

    Returns:
        The checkpoint's entries, the dictionary, and the dictionary's path.

    Raises:
        UsageError: a file cannot be read or has other contents.
    """
    path = Path(dictionary or Path(checkpoint).with_name("dict.txt"))
    return read_state(checkpoint), read_dictionary(path), path


def read_state(checkpoint: str | Path) -> dict[str, Any]:
    """The entries of a fairseq checkpoint.

    Parameters are copied, because training may overwrite the file.

    Raises:
        UsageError: it cannot be read or has other contents.
    """
    state = read_checkpoint(checkpoint)
    model = state["model"]
    if not isinstance(model, dict) or not all(isinstance(v, Tensor) for v in model.values()):
        raise CheckpointError(
            f"{checkpoint} is not a fairseq checkpoint: its model is not a state dict."
        )
    # One call, so that a tensor with several names is copied once.
    return state | {"model": copy.deepcopy(model)}


def write(converted: Converted, out: Path, dictionary: Path) -> None:
    """Write a directory atomically; `out` must not exist.

    The files of `--bpe sentencepiece` and `--bpe gpt2` beside the source's dictionary are copied.

    Raises:
        UsageError: `out` exists or cannot be written, or tokens have no names.
    """
    family, files = converted.family, _files(converted)
    given = arguments(with_recorded(converted.settings, family), family)
    config = OmegaConf.to_container(convert_namespace_to_omegaconf(given), enum_to_str=True)
    history = {
        "criterion_name": CRITERION_REGISTRY[family.criterion].__name__,
        "optimizer_name": "FairseqAdam",
        "lr_scheduler_state": {"best": None},
        "num_updates": 0,
    }
    checkpoint = {
        "args": None,
        "cfg": config,
        # Copies: torch saves the whole storage of a view.
        "model": {name: value.clone() for name, value in converted.state.items()},
        "optimizer_history": [history],
        "extra_state": {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}},
    }
    with building(out) as folder:
        with open(folder / "model.pt", "wb") as file:
            torch.save(checkpoint, file)
        write_files(folder, files)
        copy_tokenizer(dictionary.parent, folder)


def _files(converted: Converted) -> dict[str, bytes]:
    """What a directory has beside the checkpoint.

    Raises:
        DataError: tokens have no names.
    """
    if converted.nameless:
        raise DataError(
            f"{converted.nameless}: save it there, or give --dict, or add --to huggingface, which "
            "needs none."
        )
    texts = {"dict.txt": dictionary_text(converted.dictionary)}
    if converted.labels:
        texts[LABELS] = dictionary_text(dictionary_of(converted.labels))
    if converted.kept:
        texts[KEPT] = json.dumps(converted.kept, indent=2) + "\n"
    if converted.tokenizer:
        converted.notes.append(
            "dict.txt holds the ids of tokenizer.json: binarise with --bpe tokenizer_json"
        )
    files = {name: text.encode() for name, text in texts.items()}
    return files | converted.tokenizer | converted.files


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files by their names, which may have folders."""
    for name, contents in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(contents)


def copy_tokenizer(source: Path, folder: Path) -> None:
    """Copy the files of `--bpe sentencepiece` and `--bpe gpt2`, and how texts are prepared."""
    for name in (SENTENCEPIECE, *GPT2, PREPROCESSING):
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)


@contextmanager
def building(out: str | Path) -> Iterator[Path]:
    """Write a directory atomically: yields a temporary folder that is renamed by `files.move`.

    Raises:
        UsageError: ``out`` exists, or cannot be written.
    """
    out = Path(out).absolute()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigurationError(f"--out {str(out)!r} exists already; name a new directory.")
    folder = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".partial", dir=out.parent))
        folder.chmod(0o755)
        yield folder
        move(folder, out)
    except (OSError, RuntimeError) as error:
        # torch reports a full disk as a RuntimeError.
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise UsageError(f"cannot write {out}: {reason}.") from error
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def load(directory: str | Path) -> Converted:
    """Read a directory (or a checkpoint with dict.txt beside it) of a model of this package.

    Raises:
        CheckpointError: the directory does not hold such a model.
    """
    source = find_checkpoint(Path(directory))
    folder, fine_tuned = source.parent, source.parent / "input0" / "dict.txt"
    beside = fine_tuned if fine_tuned.is_file() else folder / "dict.txt"
    state = read_state(source)
    parameters, family = state["model"], family_of(state["model"], source)
    settings = recorded_settings(state, "model", source)
    if "position_encoding" not in settings:
        raise CheckpointError(
            f"{source} is not a checkpoint of this package: it records no position encoding."
        )
    task = recorded_settings(state, "task", source)
    settings |= {"add_bos_token": task["add_bos_token"]} if "add_bos_token" in task else {}
    settings |= sizes(parameters, source, family.model, family)
    dictionary, rows = read_dictionary(beside), len(parameters[family.embeddings])
    check_size(dictionary, rows, beside, family.adds_mask)
    vocabulary = vocabulary_beside(folder, dictionary, rows)
    return Converted(
        settings,
        parameters,
        dictionary,
        folder=folder,
        family=family,
        order=vocabulary.order,
        tokenizer=vocabulary.tokenizer,
        labels=read_labels(beside, folder),
        kept=read_kept(folder),
        files=carried(folder),
        training=training_of(state, source),
    )


def read_kept(folder: Path) -> dict[str, Any]:
    """Settings of the source that have no counterpart here.

    Raises:
        CheckpointError: their file is damaged.
    """
    path = folder / KEPT
    if not path.is_file():
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from error
