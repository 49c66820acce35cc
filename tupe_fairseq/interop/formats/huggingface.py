"""Directories of Hugging Face's `transformers`: config.json and parameters.

`architectures/` has a table for each kind of model. A model with the encoding `learned` is written
as RoBERTa, or as BERT with the ids of a BERT; every other is written with its own code
(`sources.py`), and `learned` too with --classes tupe.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor

from ...errors import CheckpointError, ConfigurationError
from ...extras import import_extra
from ...hub.files import TOKENIZER
from ..architectures import Architecture
from ..card import model_card
from ..carried import DICTIONARY, fairseq_files, sentence_files
from ..check import inputs
from ..classes import PROBLEM, class_of, default_classes, library, to_transformers
from ..conversion import Conversion, Encode, Opened, register
from ..models import (
    ANSWERS,
    CROSS_ENCODER,
    HEADS,
    TOKEN_TYPES,
    Converted,
    encoding_options,
    head_names,
    matrix,
    sizes,
    task_of,
)
from ..output import building, write_files
from ..reading import state_of
from ..saved import read_config
from ..sources import AUTO_MAP, collect
from ..tokenizer_files import has_tokenizer, read_tokenizer, settings_of
from ..warm_start import Encoding, Seed, warm_start

KIND = "huggingface"
#: Options of formats that are written with a tokenizer.
Head = Annotated[str, "the classification head to write"]
LowerCase = Annotated[bool, "whether the tokenizer lowercases texts (default: as recorded)"]
Classes = Annotated[
    str,
    "roberta or bert (default for `learned`), deberta-v2, modernbert, or tupe with its own code",
]


def read(
    source: str | Path,
    dictionary: str | Path | None = None,
    *,
    position_encoding: Encoding | None = None,
    seed: Seed = 1,
) -> Converted:
    """Read a directory of one of the models of `architectures/`.

    The default dictionary is dict.txt in the directory, or else the tokens of the tokenizer. Any
    other encoding than the source's is a warm start, with parameters from `seed`.

    Raises:
        UsageError: it is not such a directory, or its contents do not fit.
    """
    config, architecture = read_config(folder := Path(source))
    if architecture.model_type == "tupe" and (position_encoding or seed != 1):
        raise ConfigurationError(
            f"{folder} has an encoding of its own; leave out --position-encoding and --seed."
        )
    settings = _settings(config, architecture, folder)
    state, notes = state_of(folder, config, architecture, KIND)
    settings |= _of_state(config, architecture, state, folder)
    path = Path(dictionary or folder / DICTIONARY)
    if dictionary and settings["pad_token_id"] != 1:
        raise ConfigurationError(
            f"--dict does not apply to {architecture.model_type}: its tokenizer has the tokens."
        )
    if dictionary and not path.is_file():
        raise ConfigurationError(f"--dict is {str(path)!r}, but there is no such file.")
    files = sentence_files(folder)
    if path.is_file():
        # Without fairseq's dictionary, a sentencepiece model there is that of XLM-RoBERTa.
        files |= fairseq_files(path)
    converted = Converted(settings, state, folder, files=files, notes=notes)
    if has_tokenizer(folder):
        converted.tokenizer, ids = read_tokenizer(folder, settings["vocab_size"])
        settings |= ids
    converted.head = next(iter(head_names(state)), None)
    if converted.head and task_of(state, converted.head) != ANSWERS:
        weight = matrix(state, f"{HEADS}{converted.head}.out_proj.weight", folder, KIND)
        converted.labels = _labels(config, len(weight))
    warm_start(converted, position_encoding, seed)
    return converted


def _settings(config: Any, architecture: Architecture, folder: Path) -> dict[str, Any]:
    """The configuration by the names of `TupeConfig`, and what is kept of it beside them.

    Raises:
        UsageError: a setting is invalid, or has no counterpart.
    """
    from ...huggingface import TupeConfig

    known = TupeConfig.defaults()
    settings = {name: getattr(config, name) for name in known if hasattr(config, name)}
    settings |= architecture.settings
    settings |= architecture.derived(config)
    # With the defaults of the others.
    (complete := TupeConfig(**settings)).check_numbers()
    complete.max_position_embeddings -= architecture.first_position or 0
    settings = {name: getattr(complete, name) for name in known}
    if unknown := settings["position_options"].keys() - encoding_options(settings):
        raise CheckpointError(
            f"invalid position_options in {folder}: {', '.join(map(str, unknown))}."
        )
    return settings | {name: getattr(config, name, None) for name in architecture.kept}


def _of_state(
    config: Any, architecture: Architecture, state: dict[str, Tensor], folder: Path
) -> dict[str, Any]:
    """Settings that the parameters show."""
    settings = sizes(state, folder, KIND)
    if architecture.types == 1:
        settings["type_vocab_size"] = int(TOKEN_TYPES in state)
    if head_names(state):
        settings |= {name: getattr(config, name, None) for name in (PROBLEM, *CROSS_ENCODER)}
    return settings


def _labels(config: Any, count: int) -> list[str]:
    """Names of the classes, each a line of a dictionary."""
    names = (config.id2label.get(number, f"LABEL_{number}") for number in range(count))
    return [" ".join(str(name).split()) for name in names]


def write(
    converted: Converted,
    out: Path,
    *,
    head: Head | None = None,
    classes: Classes | None = None,
    lower_case: LowerCase | None = None,
) -> None:
    """Write a directory of stock classes of transformers, or of those with their own code.

    Raises:
        UsageError: `out` exists, or there is no counterpart of the model.
    """
    kind = classes or default_classes(converted)
    model, files = to_transformers(converted, kind, head), {}
    if kind == "tupe":
        model.config.auto_map = AUTO_MAP
        options = model.config.position_options
        files = collect(model.config.position_encoding, options)
    with building(out) as folder:
        try:
            model.save_pretrained(folder)
        except import_extra("safetensors", "hf").SafetensorError as error:
            raise OSError(str(error)) from error
        write_files(folder, {name: text.encode() for name, text in files.items()})
        write_texts(folder, converted, lower_case)
        card = model_card(converted, model, (folder / TOKENIZER).is_file(), kind == "tupe")
        (folder / "README.md").write_text(card, encoding="utf-8")


def write_texts(folder: Path, converted: Converted, lower_case: bool | None) -> None:
    """Write the tokenizer, or note why there is none, and the files that are carried.

    Raises:
        ConfigurationError: `lower_case` for a tokenizer that is carried as it is.
    """
    write_files(folder, converted.files)
    if converted.write_tokenizer is not None:
        note = converted.write_tokenizer(folder, lower_case)
        converted.notes += [note] if note else []
    elif lower_case is not None:
        raise ConfigurationError(
            "--lower-case does not apply: tokenizer.json is copied unchanged, and determines "
            "whether texts are lowercased."
        )
    write_files(folder, converted.tokenizer)


def open_directory(directory: Path, converted: Converted, head: str | None) -> Opened:
    """The model as transformers loads it.

    Raises:
        UsageError: `transformers` is not installed.
    """
    # A configuration for multiple choice does not say that there is one score.
    how = {"id2label": {0: converted.labels[0]}} if len(converted.labels) == 1 else {}
    loaded = class_of(converted, head).from_pretrained(str(directory), dtype=torch.float32, **how)
    model, bare = loaded.eval(), converted.writes_features(head)

    def forward(tokens: Tensor) -> Tensor:
        arguments = inputs(tokens, converted)
        if not converted.has_types:
            del arguments["token_type_ids"]
        out = model(**arguments)
        if bare:
            return out.last_hidden_state
        if "start_logits" in out:
            return torch.stack((out.start_logits, out.end_logits), -1)
        return out.logits

    return Opened(forward, *texts_and_labels(directory, converted))


def texts_and_labels(
    directory: Path, converted: Converted
) -> tuple[Encode | None, list[str], dict[str, Any]]:
    """The tokenizer of a directory, if it has one, names of its classes, the tokenizer's parts."""
    path, encode = directory / "config.json", None
    parts: dict[str, Any] = {}
    names = json.loads(path.read_text(encoding="utf-8")).get("id2label", {})
    if has_tokenizer(directory):
        auto = library().AutoTokenizer
        tokenizer = auto.from_pretrained(str(directory), trust_remote_code=False)
        encode = lambda texts: tokenizer(*texts)["input_ids"]  # noqa: E731
        parts = settings_of(tokenizer)
    labels = [str(names[number]) for number in sorted(names, key=int)]
    return encode, labels[:1] if len(converted.labels) == 1 else labels, parts


SUMMARY = "transformers: RoBERTa, BERT, DeBERTa-v2, ModernBERT, or what --to huggingface wrote"
register(Conversion("--from", KIND, SUMMARY, read, open_directory, extra="hf"))
SUMMARY = (
    "transformers: RoBERTa or BERT for `learned`, a model with its own code for other encodings"
)
register(Conversion("--to", KIND, SUMMARY, write, open_directory, extra="hf"))
