"""Directories of Hugging Face's `transformers`: config.json and model.safetensors.

`architectures/` has a table for each kind of model. A model with the encoding `learned` is written
as RoBERTa; every other is written with its own code (`sources.py`), and `learned` too with
--classes tupe.
"""

import json
import shutil
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor

from ...checks import read_dictionary
from ...errors import CheckpointError, ConfigurationError
from ...extras import import_extra
from ...hub.files import TOKENIZER
from ...position import POSITION_ENCODINGS
from ..architectures import Architecture
from ..architectures.base import LABELS, TOKEN_TYPES
from ..card import model_card
from ..classes import KEPT, class_of, reordered, to_transformers
from ..conversion import Conversion, Forward, register
from ..dictionaries import check_size, dictionary_text
from ..directory import building
from ..families import MASKED
from ..keys import left_out, to_ours
from ..models import (
    ANSWERS,
    HEAD,
    HEADS,
    POSITIONS,
    TOKEN_HEADS,
    Converted,
    imported,
    matrix,
    task_of,
)
from ..saved import read_config, read_tensors
from ..settings import from_config
from ..sources import AUTO_MAP, collect
from ..vocabularies import Vocabulary, vocabulary_of, write_config
from ..warm_start import Encoding, Seed, warm_start

KIND = "huggingface"
#: Options of formats that are written with a tokenizer.
Head = Annotated[str, "the classification head to write"]
LowerCase = Annotated[bool, "yes: the tokenizer lowercases texts, as in training"]
Classes = Annotated[str, "roberta (default for `learned`), deberta-v2, or tupe with its own code"]


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
    folder = Path(source)
    config, architecture = read_config(folder)
    if architecture.model_type == "tupe" and (position_encoding or seed != 1):
        raise ConfigurationError(
            f"{folder} has an encoding of its own; leave out --position-encoding and --seed."
        )
    family = architecture.family
    kept = position_encoding in (None, architecture.settings.get("position_encoding"))
    ours, notes = _read_parameters(folder, architecture, kept)
    rows = len(ours[family.embeddings])
    vocabulary = _vocabulary(folder, dictionary, rows, architecture, config)
    ours = reordered(ours, vocabulary.order, family, back=False)
    known = _tupe_config(config, architecture, ours)
    settings = from_config(known, ours, folder, family)
    scale = getattr(config, "embedding_scale", None)
    converted = imported(settings, ours, vocabulary.dictionary, folder, KIND, family, scale)
    converted.notes = [*vocabulary.notes, *notes, *converted.notes]
    converted.order, converted.files = vocabulary.order, dict(vocabulary.files)
    names = [each for each in architecture.kept if converted.head or each not in LABELS]
    if others := {name: getattr(config, name) for name in names}:
        converted.files[KEPT] = json.dumps(others, indent=2) + "\n"
    return warm_start(converted, position_encoding, seed)


def _tupe_config(config: Any, architecture: Architecture, ours: dict[str, Tensor]) -> Any:
    """The configuration by the names of `TupeConfig`."""
    from ...huggingface import TupeConfig

    names = (name for name in TupeConfig.__annotations__ if hasattr(config, name))
    settings = {**{name: getattr(config, name) for name in names}, **architecture.settings}
    settings |= architecture.derived(config)
    if architecture.first_position is not None:
        settings["max_position_embeddings"] = len(ours[POSITIONS]) - 2
    return TupeConfig(**settings)


def _read_parameters(
    folder: Path, architecture: Architecture, positions: bool
) -> tuple[dict[str, Tensor], list[str]]:
    """Parameters by their names here, and what was left out or changed.

    Args:
        folder: the directory.
        architecture: the table of its models.
        positions: whether they are kept; False for a warm start.

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
        notes.append("left out: the pooler")
        ours = {name: value for name, value in ours.items() if name not in head}
    elif head:
        task = ANSWERS if "qa_outputs.weight" in theirs else task_of(ours, HEAD)
        name = TOKEN_HEADS.get(task, HEAD)
        notes.append(f"the classifier is the head {name}")
        ours = {key.replace(f"{HEADS}{HEAD}.", f"{HEADS}{name}."): ours[key] for key in ours}
    family = architecture.family
    tokens = matrix(ours, family.embeddings, folder, KIND)
    if architecture.first_position is not None:
        table = matrix(ours, POSITIONS, folder, KIND)
        unused = table.new_zeros(2 - architecture.first_position, table.size(1))
        ours[POSITIONS] = torch.cat((unused, table))
    if (types := ours.pop(TOKEN_TYPES, None)) is not None and types.any():
        if not positions and torch.equal(ours.get(family.output, tokens), tokens):
            ours.pop(family.output, None)
        notes.append(_add_token_type(types, ours, POSITIONS if positions else family.embeddings))
    # A tied output layer is not saved.
    ours.setdefault(family.output, ours[family.embeddings])
    return ours, notes


def _add_token_type(types: Tensor, ours: dict[str, Tensor], target: str) -> str:
    """Add type 0, which every token has, to the positions, or to the tokens of a warm start.

    In the output layer that is tied to the embeddings, it adds the same number to all logits.
    """
    if types.dim() != 2 or types.size(1) != ours[target].size(1):
        raise CheckpointError(f"the table of token types has another width than {target}.")
    ours[target] = ours[target] + types[:1]
    more = f"; left out: {len(types) - 1} other" if len(types) > 1 else ""
    return f"token type 0 is added to the {'positions' if target == POSITIONS else 'tokens'}{more}"


def _vocabulary(
    folder: Path, given: str | Path | None, rows: int, architecture: Architecture, config: Any
) -> Vocabulary:
    """The tokens by dict.txt where ids are fairseq's, or else by the tokenizer.

    Raises:
        UsageError: neither can be read, or the number of tokens differs.
    """
    fairseqs, path = config.pad_token_id == 1, Path(given or folder / "dict.txt")
    adds_mask = architecture.family.adds_mask
    if given and not fairseqs:
        raise ConfigurationError(
            f"--dict does not apply to {architecture.model_type}: its tokenizer has the tokens."
        )
    if not fairseqs or not (given or path.is_file()):
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
    lower_case: LowerCase = False,
) -> None:
    """Write a directory of transformers' RoBERTa or of the classes with their own code.

    Raises:
        UsageError: `out` exists, or there is no counterpart of the model.
    """
    family, encoding = converted.family, converted.settings["position_encoding"]
    stock = family is MASKED and encoding == "learned"
    drawn = converted.settings.get("randomize_positions")
    kind = classes or ("roberta" if stock and not drawn else "tupe")
    model, files = to_transformers(converted, kind, head), {}
    if kind == "tupe":
        model.config.auto_map = AUTO_MAP
        files = collect(encoding, model.config.position_options)
    with building(out) as folder:
        try:
            model.save_pretrained(folder)
        except import_extra("safetensors", "hf").SafetensorError as error:
            raise OSError(str(error)) from error
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        write_texts(folder, converted, lower_case, kind)
        card = model_card(converted, model, (folder / "tokenizer.json").is_file(), kind == "tupe")
        (folder / "README.md").write_text(card, encoding="utf-8")


def write_texts(folder: Path, converted: Converted, lower_case: bool, kind: str = "tupe") -> None:
    """Write dict.txt, and the tokenizer, or note why there is none."""
    settings, family, source = converted.settings, converted.family, converted.folder
    text = dictionary_text(converted.dictionary)
    (folder / "dict.txt").write_text(text, encoding="utf-8")
    if source is not None and converted.order:
        shutil.copyfile(source / TOKENIZER, folder / TOKENIZER)
        write_config(folder, kind, settings[family.longest])
    elif source is not None:
        import_extra("tokenizers", "hf")
        from ..tokenizer_json import write_tokenizer

        longest, start = settings[family.longest], family.start(settings)
        note = write_tokenizer(folder, source, converted.dictionary, longest, lower_case, start)
        converted.notes += [note] if note else []


def outputs(directory: Path, converted: Converted, head: str | None) -> Forward:
    """The model as transformers loads it from the directory, called with fairseq's ids.

    Raises:
        UsageError: `transformers` is not installed.
    """
    loaded = class_of(converted, head).from_pretrained(str(directory), dtype=torch.float32)
    model = loaded.eval()
    order = torch.tensor(converted.order or range(model.config.vocab_size))

    def forward(tokens: Tensor) -> Tensor:
        out = model(order[tokens], attention_mask=tokens.ne(1).long())
        if "start_logits" in out:
            return torch.stack((out.start_logits, out.end_logits), -1)
        logits = out.logits
        return logits if head else logits[..., order]

    return forward


SUMMARY = "transformers: RoBERTa for `learned`, a model with its own code for other encodings"
register(Conversion("--from", KIND, SUMMARY, read, outputs, extra="hf"))
register(Conversion("--to", KIND, SUMMARY, write, outputs, extra="hf"))
