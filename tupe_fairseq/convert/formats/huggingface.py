"""Directories of Hugging Face's `transformers`: config.json and parameters.

`architectures/` has a table for each kind of model. A model with the encoding `learned` is written
as RoBERTa, or as BERT with the ids of a BERT; every other is written with its own code
(`sources.py`), and `learned` too with --classes tupe.
"""

from pathlib import Path
from typing import Annotated, Any

from torch import Tensor

from ...base.errors import CheckpointError, ConfigurationError
from ...base.extras import import_extra
from ...fairseq.hub.files import SENTENCEPIECE, TOKENIZER
from ...position.deleted import refuse_deleted
from ..architectures import Architecture
from ..card import model_card
from ..carried import DICTIONARY, fairseq_files, sentence_files
from ..classes import PROBLEM, default_classes, library, to_transformers
from ..conversion import Conversion, register
from ..labels import labels_of
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
from ..opened import open_directory
from ..output import building, write_files
from ..reading import state_of
from ..saved import read_config
from ..sources import AUTO_MAP, collect
from ..tokenizer_files import has_tokenizer, read_tokenizer
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
    folder = Path(source)
    config, architecture = read_config(folder)
    if architecture.model_type == "tupe" and (position_encoding or seed != 1):
        raise ConfigurationError(
            f"{folder} has an encoding of its own; leave out --position-encoding and --seed."
        )
    settings = _settings(config, architecture, folder)
    state, notes = state_of(folder, config, architecture)
    settings |= _of_state(config, architecture, state, folder)
    if dictionary and settings["pad_token_id"] != 1:
        raise ConfigurationError(
            f"--dict does not apply to {architecture.model_type}: its tokenizer has the tokens."
        )
    files = _files(folder, dictionary)
    converted = Converted(settings, state, folder, files=files, notes=notes)
    if settings.get("legacy") is False and library().__version__ < "5":
        settings["legacy"] = True
        converted.not_comparable = "transformers 4 ties a layer of this head to the embeddings"
    if has_tokenizer(folder):
        converted.tokenizer, ids = read_tokenizer(folder, settings["vocab_size"])
        settings |= ids
    converted.head = next(iter(head_names(state)), None)
    if converted.head and task_of(state, converted.head) != ANSWERS:
        weight = matrix(state, f"{HEADS}{converted.head}.out_proj.weight", folder, KIND)
        converted.labels = labels_of(config, len(weight))
    warm_start(converted, position_encoding, seed)
    return converted


def _files(folder: Path, dictionary: str | Path | None) -> dict[str, bytes]:
    """Files that are carried; fairseq's are beside the dictionary.

    Raises:
        UsageError: there is no such dictionary, or a file is damaged.
    """
    path = Path(dictionary or folder / DICTIONARY)
    if dictionary and not path.is_file():
        raise ConfigurationError(f"--dict is {str(path)!r}, but there is no such file.")
    files = fairseq_files(path) | sentence_files(folder)
    if DICTIONARY not in files:
        # XLM-RoBERTa's own, whose ids are others.
        files.pop(SENTENCEPIECE, None)
    return files


def _settings(config: Any, architecture: Architecture, folder: Path) -> dict[str, Any]:
    """The configuration by the names of `TupeConfig`.

    Raises:
        UsageError: a setting is invalid, or has no counterpart.
    """
    from ...huggingface import TupeConfig

    known = TupeConfig.defaults()
    settings = {name: getattr(config, name) for name in known if hasattr(config, name)}
    settings |= architecture.settings
    settings |= architecture.derived(config)
    # With the defaults of the others.
    complete = TupeConfig(**settings)
    complete.check_numbers()
    complete.max_position_embeddings -= architecture.first_position or 0
    settings = {name: getattr(complete, name) for name in known}
    options = encoding_options(settings)
    refuse_deleted(settings["position_options"], options)
    if unknown := settings["position_options"].keys() - options:
        raise CheckpointError(
            f"invalid position_options in {folder}: {', '.join(map(str, unknown))}."
        )
    return settings


def _of_state(
    config: Any, architecture: Architecture, state: dict[str, Tensor], folder: Path
) -> dict[str, Any]:
    """Settings that the parameters show, and those of `config` that are kept beside them."""
    settings = sizes(state, folder, KIND)
    if architecture.types == 1:
        settings["type_vocab_size"] = int(TOKEN_TYPES in state)
    kept = [*architecture.kept]
    if head_names(state):
        kept += [PROBLEM, *CROSS_ENCODER]
    return settings | {name: getattr(config, name, None) for name in kept}


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
    model = to_transformers(converted, kind, head)
    files = {}
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
    if converted.own_tokenizer is not None:
        longest = converted.settings["max_position_embeddings"]
        note = converted.own_tokenizer.write(folder, longest, lower_case)
        converted.notes += [note] if note else []
    elif lower_case is not None:
        raise ConfigurationError(
            "--lower-case does not apply: tokenizer.json is copied unchanged, and determines "
            "whether texts are lowercased."
        )
    write_files(folder, converted.tokenizer)


SUMMARY = (
    "transformers: RoBERTa, XLM-RoBERTa, CamemBERT, BERT, DeBERTa-v2, ModernBERT, MPNet, "
    "or what --to huggingface wrote"
)
register(Conversion("--from", KIND, SUMMARY, read, open_directory, extra="hf"))
SUMMARY = (
    "transformers: RoBERTa or BERT for `learned`, a model with its own code for other encodings"
)
register(Conversion("--to", KIND, SUMMARY, write, open_directory, extra="hf"))
