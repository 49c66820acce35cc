"""Directories of Hugging Face's `transformers`: config.json and model.safetensors.

`architectures/` has a table for each kind of model. A model with the encoding `learned` is written
as RoBERTa, or as BERT with the ids of a BERT; every other is written with its own code
(`sources.py`), and `learned` too with --classes tupe.
"""

from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor

from ...checks import read_dictionary
from ...errors import ConfigurationError
from ...extras import import_extra
from ...hub.files import lowercases, record_preprocessing
from ...position import POSITION_ENCODINGS
from ..architectures import Architecture
from ..architectures.base import PROBLEM
from ..card import model_card
from ..check import token_types
from ..classes import class_of, reordered, to_transformers
from ..conversion import Conversion, Forward, register
from ..dictionaries import check_size, dictionary_text
from ..directory import building, copy_tokenizer, write_files
from ..families import MASKED
from ..keys import left_out, to_ours
from ..models import (
    ANSWERS,
    HEAD,
    HEADS,
    POOLER,
    POSITIONS,
    TOKEN_HEADS,
    TOKEN_TYPES,
    Converted,
    imported,
    matrix,
    task_of,
)
from ..saved import read_config, read_tensors
from ..sentence_transformers import carried
from ..settings import from_config
from ..sources import AUTO_MAP, collect
from ..vocabularies import (
    CONFIG,
    Vocabulary,
    has_tokenizer,
    vocabulary_of,
    without_tokenizer,
    write_config,
)
from ..warm_start import Encoding, Seed, warm_start

KIND = "huggingface"
#: Options of formats that are written with a tokenizer.
Head = Annotated[str, "the classification head to write"]
LowerCase = Annotated[bool, "whether the tokenizer lowercases texts (default: as recorded)"]
Classes = Annotated[
    str, "roberta or bert (default for `learned`), deberta-v2, or tupe with its own code"
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
    if position_encoding is not None:
        # An unknown name is an error before anything is read.
        POSITION_ENCODINGS[position_encoding]
    config, architecture = read_config(folder := Path(source))
    if architecture.model_type == "tupe" and (position_encoding or seed != 1):
        raise ConfigurationError(
            f"{folder} has an encoding of its own; leave out --position-encoding and --seed."
        )
    family, (ours, notes) = architecture.family, _read_parameters(folder, architecture)
    rows = len(ours[family.embeddings])
    vocabulary = _vocabulary(folder, dictionary, rows, architecture, config)
    ours = reordered(ours, vocabulary.order, family, back=False)
    settings = from_config(_tupe_config(config, architecture, ours), ours, folder, family)
    words, scale = vocabulary.dictionary, getattr(config, "embedding_scale", None)
    converted = imported(settings, ours, words, folder, KIND, family, scale)
    converted.notes[:0] = notes
    converted.order, converted.tokenizer = vocabulary.order, vocabulary.tokenizer
    converted.nameless, converted.files = vocabulary.nameless, carried(folder)
    converted.kept |= _kept(config, architecture, converted)
    converted.labels = _labels(config, converted)
    return warm_start(converted, position_encoding, seed)


def _kept(config: Any, architecture: Architecture, converted: Converted) -> dict[str, Any]:
    """Settings without a counterpart, which are written back."""
    names = (name for name in architecture.kept if converted.head or name != PROBLEM)
    given = ((name, getattr(config, name)) for name in names)
    found = {name: value for name, value in given if value is not None}
    if converted.nameless:
        # No tokenizer tells them.
        found |= {name: getattr(config, name) for name in ("bos_token_id", "eos_token_id")}
    return found


def _labels(config: Any, converted: Converted) -> list[str]:
    """Names of the classes, each a line of a dictionary."""
    if not converted.head or task_of(converted.state, converted.head) == ANSWERS:
        return []
    count = len(converted.state[f"{HEADS}{converted.head}.out_proj.weight"])
    names = (config.id2label.get(number, f"LABEL_{number}") for number in range(count))
    return [" ".join(str(name).split()) for name in names]


def _tupe_config(config: Any, architecture: Architecture, ours: dict[str, Tensor]) -> Any:
    """The configuration by the names of `TupeConfig`."""
    from ...huggingface import TupeConfig

    names = (name for name in TupeConfig.defaults() if hasattr(config, name))
    settings = {**{name: getattr(config, name) for name in names}, **architecture.settings}
    settings |= architecture.derived(config)
    if architecture.first_position is not None:
        settings["max_position_embeddings"] = len(ours[POSITIONS]) - 2
    if architecture.types == 1:
        settings["type_vocab_size"] = int(TOKEN_TYPES in ours)
    return TupeConfig(**settings)


def _read_parameters(
    folder: Path, architecture: Architecture
) -> tuple[dict[str, Tensor], list[str]]:
    """Parameters by their names here, and what was left out or changed.

    Raises:
        UsageError: a file or a table of embeddings is missing or damaged.
    """
    theirs, rules = read_tensors(folder), architecture.rules
    # The names of a model without a head lack the prefix.
    bare = ("embeddings.", "encoder.", "pooler.", "embed_tokens.")
    prefix = architecture.prefix or architecture.model_type
    theirs = {f"{prefix}.{n}" if n.startswith(bare) else n: v for n, v in theirs.items()}
    ours, notes = to_ours(theirs, rules), [f"left out: {name}" for name in left_out(theirs, rules)]
    head = {name for name in ours if name.startswith(HEADS)}
    if head and not any(name.startswith(f"{HEADS}{HEAD}.out_proj.") for name in head):
        notes.append(f"the pooler is the first layer of the head {POOLER}")
        ours = {key.replace(f"{HEADS}{HEAD}.", f"{HEADS}{POOLER}."): ours[key] for key in ours}
        width = len(ours[f"{HEADS}{POOLER}.dense.weight"])
        ours[f"{HEADS}{POOLER}.out_proj.weight"] = torch.eye(width)
        ours[f"{HEADS}{POOLER}.out_proj.bias"] = torch.zeros(width)
    elif head:
        task = ANSWERS if "qa_outputs.weight" in theirs else task_of(ours, HEAD)
        name = TOKEN_HEADS.get(task, HEAD)
        notes.append(f"the classifier is the head {name}")
        ours = {key.replace(f"{HEADS}{HEAD}.", f"{HEADS}{name}."): ours[key] for key in ours}
    matrix(ours, architecture.family.embeddings, folder, KIND)
    if architecture.first_position is not None:
        table = matrix(ours, POSITIONS, folder, KIND)
        unused = table.new_zeros(2 - architecture.first_position, table.size(1))
        ours[POSITIONS] = torch.cat((unused, table))
    if architecture.types == 1 and (types := ours.pop(TOKEN_TYPES, torch.zeros(1))).any():
        # Type 0, which all of RoBERTa's tokens have.
        ours[TOKEN_TYPES] = types[:1]
    # A tied output layer is not saved.
    ours.setdefault(architecture.family.output, ours[architecture.family.embeddings])
    return ours, notes


def _vocabulary(
    folder: Path, given: str | Path | None, rows: int, architecture: Architecture, config: Any
) -> Vocabulary:
    """The tokens by dict.txt where ids are fairseq's, or else by the tokenizer.

    Raises:
        UsageError: a file is damaged, or the number of tokens differs.
    """
    fairseqs, path = config.pad_token_id == 1, Path(given or folder / "dict.txt")
    adds_mask = architecture.family.adds_mask
    if given and not fairseqs:
        raise ConfigurationError(
            f"--dict does not apply to {architecture.model_type}: its tokenizer has the tokens."
        )
    if not fairseqs or not (given or path.is_file()):
        if not has_tokenizer(folder):
            return without_tokenizer(rows, config.pad_token_id, f"{folder} has no tokenizer")
        return vocabulary_of(folder, rows, adds_mask)
    dictionary = read_dictionary(path)
    check_size(dictionary, rows, path, adds_mask)
    return Vocabulary(dictionary)


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
    kind = classes or _kind(converted)
    model, files = to_transformers(converted, kind, head), {}
    if kind == "tupe":
        model.config.auto_map = AUTO_MAP
        options = model.config.position_options
        files = collect(converted.settings["position_encoding"], options)
    with building(out) as folder:
        try:
            model.save_pretrained(folder)
        except import_extra("safetensors", "hf").SafetensorError as error:
            raise OSError(str(error)) from error
        write_files(folder, {name: text.encode() for name, text in files.items()})
        write_texts(folder, converted, lower_case)
        card = model_card(converted, model, (folder / "tokenizer.json").is_file(), kind == "tupe")
        (folder / "README.md").write_text(card, encoding="utf-8")


def _kind(converted: Converted) -> str:
    """The classes that are written by default."""
    settings = converted.settings
    stock = converted.family is MASKED and settings["position_encoding"] == "learned"
    if not stock or settings.get("randomize_positions"):
        return "tupe"
    # RoBERTa's positions begin at the id of padding.
    return "roberta" if not converted.order or converted.order[1] == 1 else "bert"


def write_texts(folder: Path, converted: Converted, lower_case: bool | None) -> None:
    """Write the tokenizer, or note why there is none, and the files of sentence-transformers.

    Raises:
        ConfigurationError: `lower_case` for a tokenizer that is carried as it is.
    """
    settings, family, source = converted.settings, converted.family, converted.folder
    longest, types = settings[family.longest], settings.get("type_vocab_size", 0) > 1
    write_files(folder, converted.files)
    if converted.tokenizer:
        if lower_case is not None:
            raise ConfigurationError(
                "--lower-case does not apply: tokenizer.json is carried as it is, and says itself "
                "whether texts are lowercased."
            )
        write_files(folder, converted.tokenizer)
        if CONFIG not in converted.tokenizer:
            write_config(folder, longest, types)
        return
    if converted.nameless:
        return
    words = dictionary_text(converted.dictionary)
    (folder / "dict.txt").write_text(words, encoding="utf-8")
    if source is not None:
        import_extra("tokenizers", "hf")
        from ..tokenizer_json import write_tokenizer

        start, lowers = family.start(settings), lowercases(source) or False
        lowers = lowers if lower_case is None else lower_case
        note = write_tokenizer(folder, source, converted.dictionary, longest, lowers, start, types)
        converted.notes += [note] if note else []
        copy_tokenizer(source, folder)
        if lowers:
            record_preprocessing(folder, lowers)


def outputs(directory: Path, converted: Converted, head: str | None) -> Forward:
    """The model as transformers loads it from the directory, called with fairseq's ids.

    Raises:
        UsageError: `transformers` is not installed.
    """
    loaded = class_of(converted, head).from_pretrained(str(directory), dtype=torch.float32)
    model, bare = loaded.eval(), converted.writes_features(head)
    order = torch.tensor(converted.order or range(model.config.vocab_size))
    types = converted.settings.get("type_vocab_size", 0) > 1

    def forward(tokens: Tensor) -> Tensor:
        more = {"token_type_ids": token_types(tokens)} if types else {}
        out = model(order[tokens], attention_mask=tokens.ne(1).long(), **more)
        if bare:
            return out.last_hidden_state
        if "start_logits" in out:
            return torch.stack((out.start_logits, out.end_logits), -1)
        return out.logits if head else out.logits[..., order]

    return forward


SUMMARY = "transformers: RoBERTa for `learned`, a model with its own code for other encodings"
register(Conversion("--from", KIND, SUMMARY, read, outputs, extra="hf"))
register(Conversion("--to", KIND, SUMMARY, write, outputs, extra="hf"))
