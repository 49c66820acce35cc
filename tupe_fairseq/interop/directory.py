"""Directories that `from_pretrained` of this package's models loads: model.pt and dict.txt."""

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import MODEL_REGISTRY
from omegaconf import OmegaConf
from torch import Tensor

from ..arguments.roberta import ROBERTA
from ..checkpoints.reading import read_checkpoint, recorded_settings
from ..checks import read_dictionary
from ..errors import CheckpointError
from ..extras import import_extra
from ..hub.files import find_checkpoint, lowercases, record_preprocessing
from .architectures import ARCHITECTURES
from .carried import DICTIONARY, LABELS, fairseq_files, sentence_files
from .conversion import Conversion, Forward, Opened
from .dictionaries import (
    check_size,
    dictionary_for,
    dictionary_of,
    dictionary_text,
    inverse,
    order_beside,
    read_labels,
    reordered,
    tokenizer_beside,
)
from .fairseq_models import (
    TASK,
    all_arguments,
    check_kind,
    completed,
    from_fairseq,
    to_fairseq,
)
from .models import CROSS_ENCODER, HEADS, LM_HEAD, POOLER, Converted, head_names, sizes
from .output import building, write_files
from .settings import from_config, to_config, training_of
from .tokenizer_files import parts_of

#: Settings of transformers without a counterpart in fairseq, and "headless": the language modeling
#: head is untrained.
KEPT = "transformers.json"
KEPT_SETTINGS = (
    *("pooler_dropout", "initializer_range", "problem_type"),
    *("classifier_norm", "classifier_pooling", *CROSS_ENCODER),
    *(name for architecture in ARCHITECTURES for name in architecture.kept),
)
HEADLESS = "headless"


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


def load(directory: str | Path, dictionary: Path | None = None) -> Converted:
    """Read a directory (or a checkpoint with dict.txt beside it) of a model of this package.

    Raises:
        CheckpointError: the directory does not hold such a model.
    """
    source = find_checkpoint(Path(directory))
    folder, fine_tuned = source.parent, source.parent / "input0" / DICTIONARY
    beside = dictionary or (fine_tuned if fine_tuned.is_file() else folder / DICTIONARY)
    state = read_state(source)
    arguments = recorded_settings(state, "model", source)
    if "position_encoding" not in arguments:
        raise CheckpointError(
            f"{source} is not a checkpoint of this package: it records no position encoding."
        )
    check_kind(state["model"], source)
    words = read_dictionary(beside)
    converted = neutral(arguments, state["model"], words, beside, source)
    kept = read_kept(folder)
    if kept.pop(HEADLESS, False):
        converted.state = {
            name: v for name, v in converted.state.items() if not name.startswith(LM_HEAD)
        }
    converted.settings |= kept
    converted.files |= sentence_files(folder)
    converted.training = training_of(state, source)
    order = order_beside(folder, words, converted.settings["vocab_size"])
    if order:
        _take_tokenizer(converted, order)
    return converted


def neutral(
    arguments: Mapping[str, Any],
    state: Mapping[str, Tensor],
    dictionary: Dictionary,
    path: Path,
    source: Path,
) -> Converted:
    """The form between formats of a model of fairseq, whose dictionary is beside `path`.

    Raises:
        UsageError: a setting or parameter is missing, or the dictionary is another one.
    """
    parameters = from_fairseq(state)
    shown = sizes(parameters, source, ROBERTA.name)
    settings = to_config(arguments, shown)
    check_size(dictionary, shown["vocab_size"], path)
    folder = source.parent
    converted = Converted(settings, parameters, folder, labels=read_labels(path, folder))
    converted.files = fairseq_files(path) | fairseq_files(folder / path.name)
    converted.files[DICTIONARY] = dictionary_text(dictionary)

    def write_tokenizer(out: Path, lower_case: bool | None) -> str:
        import_extra("tokenizers", "hf")
        from .fast_tokenizers import write_tokenizer as write

        recorded = lowercases(folder)
        lowers = bool(recorded if lower_case is None else lower_case)
        if lowers or recorded:
            record_preprocessing(out, lowers)
        longest, types = settings["max_position_embeddings"], converted.has_types
        return write(out, folder, dictionary, longest, lowers, types)

    converted.write_tokenizer = write_tokenizer
    return converted


def _take_tokenizer(converted: Converted, order: list[int]) -> None:
    """Give the tokens the ids of the tokenizer.json beside the checkpoint."""
    settings = converted.settings
    converted.state = reordered(converted, inverse(order))
    settings |= zip(("bos_token_id", "pad_token_id", "eos_token_id"), order, strict=False)
    converted.tokenizer = tokenizer_beside(converted)
    converted.write_tokenizer = None
    del converted.files[DICTIONARY]


def read_kept(folder: Path) -> dict[str, Any]:
    """Settings of transformers that have no counterpart in fairseq.

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


def write(converted: Converted, out: Path) -> None:
    """Write a directory atomically; `out` must not exist.

    Raises:
        UsageError: `out` exists or cannot be written, tokens have no names, or fairseq has no
            such model.
    """
    _leave_out_norms(converted)
    dictionary, order = dictionary_for(converted)
    settings = from_config(converted.settings)
    state = to_fairseq(reordered(converted, order))
    state = completed(converted, state, settings, dictionary)
    files = _files(converted, dictionary, bool(order))
    arguments = convert_namespace_to_omegaconf(all_arguments(settings))
    config = OmegaConf.to_container(arguments, enum_to_str=True)
    history = {
        "criterion_name": CRITERION_REGISTRY[TASK].__name__,
        "optimizer_name": "FairseqAdam",
        "lr_scheduler_state": {"best": None},
        "num_updates": 0,
    }
    checkpoint = {
        "args": None,
        "cfg": config,
        # Copies: torch saves the whole storage of a view.
        "model": {name: value.clone() for name, value in state.items()},
        "optimizer_history": [history],
        "extra_state": {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}},
    }
    with building(out) as folder:
        with open(folder / "model.pt", "wb") as file:
            torch.save(checkpoint, file)
        write_files(folder, files)


def _leave_out_norms(converted: Converted) -> None:
    """Leave out classification heads with a norm, which fairseq does not have."""
    state = converted.state
    for head in head_names(state):
        if f"{HEADS}{head}.norm.weight" in state:
            converted.notes.append(f"left out: the head {head}, whose norm fairseq does not have")
            state = {n: v for n, v in state.items() if not n.startswith(f"{HEADS}{head}.")}
            converted.state, converted.labels = state, []


def _files(converted: Converted, dictionary: Dictionary, by_tokenizer: bool) -> dict[str, bytes]:
    """What a directory has beside the checkpoint, and notes about it."""
    files = converted.files | {DICTIONARY: dictionary_text(dictionary)}
    settings = converted.settings
    kept = {name: settings[name] for name in KEPT_SETTINGS if settings.get(name) is not None}
    if not converted.has_lm_head:
        converted.notes.append(
            "the source has no head for masked tokens: the new one is untrained"
        )
        kept[HEADLESS] = True
    if any(name.startswith(POOLER) for name in converted.state):
        converted.notes.append("the pooler is the first layer of the head pooler")
    if converted.labels:
        files[LABELS] = dictionary_text(dictionary_of(converted.labels))
    if kept:
        files[KEPT] = (json.dumps(kept, indent=2) + "\n").encode()
    if by_tokenizer:
        converted.notes.append(
            "dict.txt holds the ids of tokenizer.json: binarise these (examples/huggingface)"
        )
        files |= converted.tokenizer
    return files


def outputs_of(
    model: Any, head: str | None, features: bool = False, order: Sequence[int] = ()
) -> Forward:
    """The logits of a model of fairseq or of its classification head, or its features.

    `order` is the id in `Converted` of each id of fairseq; empty: the same.
    """
    how = {"classification_head_name": head} if head else {"features_only": features}
    ids = torch.tensor(inverse(order))

    def forward(tokens: Tensor) -> Tensor:
        outputs = model(ids[tokens] if order else tokens, **how)[0]
        return outputs[..., ids] if order and not head and not features else outputs

    return forward


def open_directory(path: Path, converted: Converted, head: str | None) -> Opened:
    """The model as the hub loads it."""
    hub: Any = MODEL_REGISTRY[ROBERTA.name].from_pretrained(path)
    rows = converted.settings["vocab_size"]
    order = order_beside(path if path.is_dir() else path.parent, hub.task.source_dictionary, rows)

    def encode(texts: tuple[str, ...]) -> list[int]:
        ids = hub.encode(*texts).tolist()
        return [order[number] for number in ids] if order else ids

    return Opened(
        outputs_of(hub.model, head, converted.writes_features(head), order),
        encode if hub.bpe is not None else None,
        read_labels(path / DICTIONARY, path),
        parts_of(hub.bpe.tokenizer) if order else {},
    )


READ = Conversion("--from", "", "a directory of this package", load, open_directory)
WRITE = Conversion("--to", "", "a directory of this package", write, open_directory)
