"""Directories that `from_pretrained` of this package's models loads: model.pt and dict.txt."""

import copy
import functools
import io
import shutil
import tempfile
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from fairseq import options, tasks
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import BaseFairseqModel
from fairseq.models.roberta import RobertaModel
from omegaconf import OmegaConf
from torch import Tensor

from ..checkpoints.reading import read_checkpoint
from ..checkpoints.settings import recorded_settings
from ..errors import CheckpointError, ConfigurationError, UsageError
from ..files import move
from ..hub.files import find_checkpoint
from .dictionaries import Entry, check_size, dictionary_text, read_dictionary
from .families import MASKED, Family, family_of
from .keys import Table, to_ours, to_theirs
from .model_files import check_fit
from .settings import functions, sizes

ENCODER, WORDS, VERSION = MASKED.stack, MASKED.words, MASKED.version
POSITIONS = f"{ENCODER}embed_positions.weight"
#: Files of tokenizers, copied from the folder of the dictionary.
TOKENIZERS = ("sentencepiece.bpe.model", "encoder.json", "vocab.bpe")


@dataclass
class Converted:
    """A model that is not yet in a directory.

    Attributes:
        settings: arguments of the model by name.
        state: its parameters.
        entries: its dictionary.
        notes: what the user should know about the conversion.
        not_comparable: why `--check` cannot compare it with its source; empty if it can.
        folder: the directory that it was read from, which may hold a tokenizer.
        head: the classification head that the source has in place of one for masked words.
        family: the kind of model.
        files: texts of files that `write` adds, by name.
    """

    settings: dict[str, Any]
    state: dict[str, Tensor]
    entries: list[Entry]
    notes: list[str] = field(default_factory=list)
    not_comparable: str = ""
    folder: Path | None = None
    head: str | None = None
    family: Family = MASKED
    files: dict[str, str] = field(default_factory=dict)


def read_parameters(checkpoint: str | Path) -> dict[str, Any]:
    """Read a fairseq checkpoint; parameters are copied, because training may overwrite the file.

    Raises:
        CheckpointError: the file is not a checkpoint, or its parameters are not tensors by name.
    """
    state = read_checkpoint(checkpoint)
    if not isinstance(state["model"], dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor)
        for name, value in state["model"].items()
    ):
        raise CheckpointError(
            f"{checkpoint} is not a fairseq checkpoint: its model is not a state dict."
        )
    for name, value in state["model"].items():
        # A stored tensor of few bytes can have any shape; a copy of it would fill the memory.
        dense = value.layout is torch.strided and value.device.type == "cpu"
        if not dense or value.numel() * value.element_size() > value.untyped_storage().nbytes():
            raise CheckpointError(
                f"{checkpoint}: {name} {tuple(value.shape)} is not stored entry by entry."
            )
    # One call, so that a tensor with several names is copied once.
    return state | {"model": copy.deepcopy(state["model"])}


def read_source(
    checkpoint: str | Path, dictionary: str | Path | None
) -> tuple[dict[str, Any], list[Entry], Path]:
    """Read a fairseq checkpoint and its dictionary, by default the dict.txt beside it.

    Returns:
        The checkpoint's entries, the dictionary, and the dictionary's path.

    Raises:
        UsageError: a file cannot be read or has other contents.
    """
    state = read_parameters(checkpoint)
    path = Path(dictionary or Path(checkpoint).with_name("dict.txt"))
    return state, read_dictionary(path), path


def arguments(settings: dict[str, Any], family: Family = MASKED) -> Namespace:
    """All of fairseq's arguments for a model with these settings."""
    found = copy.deepcopy(_defaults(family))
    vars(found).update(family.complete(settings))
    return found


@functools.cache
def _defaults(family: Family) -> Namespace:
    flags = ["", "--task", family.task, "--criterion", family.criterion, "--arch", family.model]
    flags += ["--optimizer", "adam"]
    return options.parse_args_and_arch(options.get_training_parser(), flags)


def head_names(state: Mapping[str, Tensor]) -> list[str]:
    """Names of the classification heads in a state dict."""
    return sorted({n.split(".")[1] for n in state if n.startswith("classification_heads.")})


def check_head(state: Mapping[str, Tensor], head: str | None) -> None:
    """Check that the model has a classification head of that name.

    Raises:
        ConfigurationError: there is no classification head of that name.
    """
    heads = head_names(state)
    if head and head not in heads:
        known = ", ".join(heads) or "none"
        raise ConfigurationError(f"unknown --head {head!r}; the model's heads are: {known}.")


def register_heads(model: RobertaModel, state: Mapping[str, Tensor]) -> None:
    """Register the classification heads of a state dict with a model, in their sizes."""
    for head in head_names(state):
        sizes = (
            sum(state.get(f"classification_heads.{head}.{name}.weight", torch.zeros(0)).shape[:1])
            for name in ("out_proj", "dense")
        )
        model.register_classification_head(head, *(size or 1 for size in sizes))


def build(
    settings: dict[str, Any],
    entries: list[Entry],
    state: Mapping[str, Tensor],
    family: Family = MASKED,
) -> BaseFairseqModel:
    """A model with these settings and the heads of `state`, initialised, in eval mode."""
    given = arguments(settings, family)
    dictionary = Dictionary()
    dictionary.add_from_file(io.StringIO(dictionary_text(entries)))
    task = tasks.TASK_REGISTRY[family.task](given, dictionary)
    model = task.build_model(given).eval()
    register_heads(model, state)
    return model


def renamed(
    theirs: Mapping[str, Tensor],
    table: Table,
    settings: dict[str, Any],
    entries: list[Entry],
    source: object,
    kind: str,
) -> Converted:
    """Rename another format's parameters, `theirs`, after comparing them with the model's.

    Raises:
        CheckpointError: parameters are missing, unknown or of another shape.
    """
    heads = {name: value for name, value in theirs.items() if name.startswith("classif")}
    own = build(settings, entries, to_ours(heads, table)).state_dict()
    version = {VERSION: own.pop(VERSION)}
    check_fit(theirs, to_theirs(own, table), source, kind)
    return Converted(settings, to_ours(theirs, table) | version, entries)


def write(converted: Converted, out: Path, dictionary: Path) -> None:
    """Write a directory atomically.

    Args:
        converted: the model.
        out: the directory; must not exist.
        dictionary: path of its dictionary; tokenizers beside it are copied.
    """
    family = converted.family
    given = arguments(converted.settings, family)
    config = OmegaConf.to_container(convert_namespace_to_omegaconf(given), enum_to_str=True)
    history = {
        "criterion_name": family.criterion_class,
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
        text = dictionary_text(converted.entries)
        (folder / "dict.txt").write_text(text, encoding="utf-8")
        for name, text in converted.files.items():
            (folder / name).write_text(text, encoding="utf-8")
        for name in TOKENIZERS:
            if (tokenizer := dictionary.with_name(name)).is_file():
                shutil.copyfile(tokenizer, folder / name)


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


def load(directory: str | Path) -> tuple[Converted, Path]:
    """Read a directory (or a checkpoint with dict.txt beside it) of a model of this package.

    Returns:
        The model, and the path of its dictionary.

    Raises:
        CheckpointError: the directory does not hold such a model.
    """
    folder, name = find_checkpoint(Path(directory), None)
    fine_tuned = folder / "input0" / "dict.txt"
    beside = fine_tuned if fine_tuned.is_file() else folder / "dict.txt"
    state, entries, path = read_source(folder / name, beside)
    source = folder / name
    settings = recorded_settings(state, "model", source)
    if "position_encoding" not in settings:
        raise CheckpointError(
            f"{source} is not a tupe_roberta checkpoint: it records no encoding."
        )
    parameters, family = state["model"], family_of(state["model"], source)
    task = recorded_settings(state, "task", source)
    settings |= {name: task[name] for name in family.own if name in task}
    settings |= sizes(settings, parameters, family.stack, source, family.side)
    settings |= functions(settings, source)
    if lacking := [name for name in family.recorded.values() if settings.get(name) is None]:
        raise CheckpointError(f"{source} does not record its {', '.join(lacking)}.")
    check_size(entries, len(parameters.get(family.words, ())), path, family.adds_mask)
    return Converted(settings, parameters, entries, folder=folder, family=family), path
