"""Directories of Hugging Face's `transformers`: config.json and parameters.

`architectures/` has a table for each kind of model. A model with the encoding `learned` is written
as RoBERTa, or as BERT with the ids of a BERT; every other is written with its own code
(`sources.py`), and `learned` too with --classes tupe.
"""

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
from ..classes import PROBLEM, default_classes, library, to_transformers
from ..conversion import Conversion, register
from ..keys import left_out, split_projections, to_ours
from ..models import (
    ANSWERS,
    CROSS_ENCODER,
    EMBED_TOKENS,
    HEAD,
    HEADS,
    LM_HEAD,
    ONE_HEAD,
    POOLER,
    POSITIONS,
    TOKEN_HEADS,
    TOKEN_TYPES,
    TOKENS,
    Converted,
    encoding_options,
    head_names,
    matrix,
    output_weight,
    sizes,
    task_of,
)
from ..opened import open_directory
from ..output import building, write_files
from ..saved import read_config, read_tensors
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
    config, architecture = read_config(folder := Path(source))
    if architecture.model_type == "tupe" and (position_encoding or seed != 1):
        raise ConfigurationError(
            f"{folder} has an encoding of its own; leave out --position-encoding and --seed."
        )
    theirs = read_tensors(folder)
    state, notes = _read_parameters(theirs, folder, config, architecture)
    settings = _settings(config, architecture, state, folder) | architecture.shown(theirs)
    path = Path(dictionary or folder / DICTIONARY)
    if dictionary and settings["pad_token_id"] != 1:
        raise ConfigurationError(
            f"--dict does not apply to {architecture.model_type}: its tokenizer has the tokens."
        )
    if dictionary and not path.is_file():
        raise ConfigurationError(f"--dict is {str(path)!r}, but there is no such file.")
    files = fairseq_files(path) | sentence_files(folder)
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
        converted.labels = _labels(config, len(weight))
    warm_start(converted, position_encoding, seed)
    return converted


def _settings(
    config: Any, architecture: Architecture, state: dict[str, Tensor], folder: Path
) -> dict[str, Any]:
    """The configuration by the names of `TupeConfig`; sizes are those of the parameters."""
    from ...huggingface import TupeConfig

    known = TupeConfig.defaults()
    settings = {name: getattr(config, name) for name in known if hasattr(config, name)}
    settings |= architecture.settings
    settings |= architecture.derived(config)
    if architecture.first_position is not None:
        settings["max_position_embeddings"] = len(state[POSITIONS]) - 2
    if architecture.types == 1:
        settings["type_vocab_size"] = int(TOKEN_TYPES in state)
    # With the defaults of the others.
    (complete := TupeConfig(**settings)).check_numbers()
    settings = {name: getattr(complete, name) for name in known}
    if unknown := settings["position_options"].keys() - encoding_options(settings):
        raise CheckpointError(
            f"invalid position_options in {folder}: {', '.join(map(str, unknown))}."
        )
    names = (*architecture.kept, *((PROBLEM, *CROSS_ENCODER) if head_names(state) else ()))
    settings |= {name: getattr(config, name, None) for name in names}
    return settings | sizes(state, folder, KIND, architecture.is_causal)


def _labels(config: Any, count: int) -> list[str]:
    """Names of the classes by number."""
    return [str(config.id2label.get(number, f"LABEL_{number}")) for number in range(count)]


def _read_parameters(
    theirs: dict[str, Tensor], folder: Path, config: Any, architecture: Architecture
) -> tuple[dict[str, Tensor], list[str]]:
    """Parameters by the names of `Converted`, and what was left out or changed.

    Raises:
        CheckpointError: a table of embeddings is missing or damaged.
    """
    rules = architecture.rules
    # The names of a model without a head lack the prefix.
    bare = ("embeddings.", "encoder.", "layers.", "final_norm.", "pooler.", "embed_tokens.")
    prefix = architecture.prefix or architecture.model_type
    theirs = {f"{prefix}.{n}" if n.startswith(bare) else n: v for n, v in theirs.items()}
    if "classifier.weight" in theirs:
        # ModernBERT's head for masked tokens has the same names.
        rules = tuple(sorted(rules, key=lambda rule: not rule.ours.startswith(ONE_HEAD)))
    state, notes = to_ours(theirs, rules), [f"left out: {n}" for n in left_out(theirs, rules)]
    split_projections(state)
    tokens = matrix(state, EMBED_TOKENS, folder, KIND)
    if architecture.is_causal or f"{LM_HEAD}dense.weight" in state:
        # A tied output layer is not saved.
        state.setdefault(output_weight(architecture.is_causal), tokens)
    for name in architecture.biases:
        if (weight := state.get(name.replace(".bias", ".weight"))) is not None:
            state.setdefault(name, weight.new_zeros(len(weight)))
    _adapt(state, architecture, folder)
    return _with_named_head(state, config, notes), notes


def _adapt(state: dict[str, Tensor], architecture: Architecture, folder: Path) -> None:
    """The tables of BERT and RoBERTa, which hold other rows here."""
    if architecture.first_position is not None:
        table = matrix(state, POSITIONS, folder, KIND)
        unused = table.new_zeros(2 - architecture.first_position, table.size(1))
        state[POSITIONS] = torch.cat((unused, table))
    if architecture.types == 1 and (types := state.pop(TOKEN_TYPES, torch.zeros(1))).any():
        # Type 0, which all of RoBERTa's tokens have.
        state[TOKEN_TYPES] = types[:1]


def _with_named_head(state: dict[str, Tensor], config: Any, notes: list[str]) -> dict[str, Tensor]:
    """The parameters with the head, if there is one, by the name for its task; else a pooler."""
    prefix = POOLER
    if any(name.startswith(f"{ONE_HEAD}out_proj.") for name in state):
        class_name = next(iter(config.architectures or []), "")
        task = next((task for task in TOKEN_HEADS if class_name.endswith(task)), TOKENS)
        has_layer, of_tokens = f"{ONE_HEAD}dense.weight" in state, class_name.endswith(task)
        if has_layer and of_tokens and f"{ONE_HEAD}norm.weight" not in state:
            # Such classes have no pooler, but released files have that of the pre-training.
            notes.append("left out: the pooler")
            state = {n: v for n, v in state.items() if not n.startswith(f"{ONE_HEAD}dense.")}
        name = HEAD if has_layer and not of_tokens else TOKEN_HEADS[task]
        notes.append(f"the classifier is the head {name}")
        if class_name.endswith("MultipleChoice"):
            notes.append("the head for multiple choice becomes one score of each text")
        prefix = f"{HEADS}{name}."
    return {
        prefix + name.removeprefix(ONE_HEAD) if name.startswith(ONE_HEAD) else name: value
        for name, value in state.items()
    }


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


SUMMARY = "transformers: RoBERTa, BERT, DeBERTa-v2, ModernBERT, or what --to huggingface wrote"
register(Conversion("--from", KIND, SUMMARY, read, open_directory, extra="hf"))
SUMMARY = (
    "transformers: RoBERTa or BERT for `learned`, a model with its own code for other encodings"
)
register(Conversion("--to", KIND, SUMMARY, write, open_directory, extra="hf"))
