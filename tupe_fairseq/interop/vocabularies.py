"""Tokenizers of transformers in directories of fairseq: tokenizer.json, its ids in dict.txt."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary

from ..errors import DataError
from ..extras import import_extra
from ..hub.files import TOKENIZER, find_tokenizer
from ..hub.tokenizer_json import (
    SYMBOLS,
    TokenizerJson,
    TokenizerJsonConfig,
    load_tokenizer,
    names_of,
)
from .dictionaries import MASK, dictionary_of

CONFIG = "tokenizer_config.json"
#: Files of a tokenizer that are carried unchanged.
FILES = (TOKENIZER, CONFIG, "special_tokens_map.json", "added_tokens.json")
#: Files of tokenizers without tokenizer.json.
OTHERS = ("vocab.txt", "vocab.json", "spm.model")
#: Special tokens by the names of transformers, in the order of `tokenizer_json.SYMBOLS`.
KINDS = ("cls", "pad", "sep", "unk", "mask")


@dataclass(frozen=True)
class Vocabulary:
    """Tokens of a model; see `Converted` for `order`, `tokenizer` and `nameless`."""

    dictionary: Dictionary
    order: list[int] = field(default_factory=list)
    tokenizer: dict[str, bytes] = field(default_factory=dict)
    nameless: str = ""


def read_tokenizer(folder: Path) -> Any:
    """The tokenizer of a directory, of a class of transformers.

    Raises:
        UsageError: transformers is not installed; there is no tokenizer, or it is damaged.
    """
    library = import_extra("transformers", "hf")
    try:
        tokenizer = library.AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
        tokenizer.backend_tokenizer.to_str()
        return tokenizer
    # The libraries raise errors of any type.
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(f"the tokenizer of {folder} cannot be read: {reason}.") from error


def has_tokenizer(folder: Path) -> bool:
    """Whether a directory has a tokenizer; transformers would make one of a few symbols."""
    return any((folder / name).is_file() for name in (TOKENIZER, *OTHERS))


def vocabulary_of(folder: Path, rows: int, masked: bool = True) -> Vocabulary:
    """The ids of a tokenizer, with [CLS], padding, [SEP] and the unknown token put first.

    Raises:
        UsageError: see `read_tokenizer`; it has more tokens than `rows`, or lacks a special one,
            which the mask is only to `masked` language models.
    """
    tokenizer = read_tokenizer(folder)
    if (count := max(tokenizer.get_vocab().values()) + 1) > rows:
        raise DataError(
            f"the tokenizer of {folder} has {count} tokens, but its model has {rows} rows."
        )
    ids = [getattr(tokenizer, f"{kind}_token_id") for kind in KINDS]
    numbered = zip(KINDS, ids, strict=True)
    if lacking := [k for k, number in numbered if number is None and (masked or k != "mask")]:
        raise DataError(
            f"the tokenizer of {folder} lacks the special tokens: {', '.join(lacking)}."
        )
    backend = tokenizer.backend_tokenizer
    if (named := special_ids(backend)) != ids:
        raise DataError(
            f"the tokenizer of {folder} has special tokens of other names than "
            f"{', '.join(SYMBOLS)}: ids {named} instead of {ids}."
        )
    files = files_of(folder)
    files.setdefault(TOKENIZER, backend.to_str().encode())
    config = json.loads(files.get(CONFIG, b"{}"))
    own = {
        "tokenizer_class": type(tokenizer).__name__,
        "model_input_names": list(tokenizer.model_input_names),
    }
    files[CONFIG] = (json.dumps(own | config, indent=2) + "\n").encode()
    order, symbols = numbers(ids, rows)
    return Vocabulary(dictionary_of(symbols), order, files)


def without_tokenizer(rows: int, padding: int, reason: str) -> Vocabulary:
    """The ids of a model whose tokenizer cannot be read: fairseq knows the padding alone."""
    others = [number for number in range(rows) if number != padding]
    order, symbols = numbers([others[0], padding, *others[1:3], others[-1]], rows)
    return Vocabulary(dictionary_of(symbols), order, nameless=reason)


def numbers(special: Sequence[int | None], rows: int) -> tuple[list[int], list[str]]:
    """`Converted.order`, and the symbols of dict.txt, for ids of the special tokens."""
    *first, mask = special
    others = [number for number in range(rows) if number not in first]
    symbols = [MASK if number == mask else str(number) for number in others]
    return [*(number for number in first if number is not None), *others], symbols


def special_ids(tokenizer: Any) -> list[int | None]:
    """Ids of the special tokens of a `tokenizers.Tokenizer`, in the order of `KINDS`."""
    return [tokenizer.token_to_id(name) for name in names_of(tokenizer)]


def files_of(folder: Path) -> dict[str, bytes]:
    """Contents of the files of a tokenizer by name."""
    return {name: (folder / name).read_bytes() for name in FILES if (folder / name).is_file()}


def vocabulary_beside(folder: Path, dictionary: Dictionary, rows: int) -> Vocabulary:
    """The tokens of a directory of fairseq, with the tokenizer.json there if it is the tokenizer.

    Raises:
        UsageError: it is damaged, or is not that of the dictionary.
    """
    if find_tokenizer(folder).get("bpe") != "tokenizer_json":
        return Vocabulary(dictionary)
    read = TokenizerJson(TokenizerJsonConfig(tokenizer_json=str(folder / TOKENIZER)))
    read.check_dictionary(dictionary)
    order, _ = numbers(special_ids(read.tokenizer), rows)
    return Vocabulary(dictionary, order, files_of(folder))


def write_config(folder: Path, longest: int, types: bool) -> None:
    """Write a tokenizer_config.json that makes transformers take all of the tokenizer.json there.

    `longest` is the longest text in tokens; `types`, whether the model has token types.
    """
    tokenizer = load_tokenizer(folder / TOKENIZER)
    ids = special_ids(tokenizer)
    pairs = zip((*KINDS, "bos", "eos"), (*ids, ids[0], ids[2]), strict=True)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{f"{kind}_token": tokenizer.id_to_token(n) for kind, n in pairs if n is not None},
        "clean_up_tokenization_spaces": False,
        "model_input_names": input_names(types),
        "model_max_length": longest,
    }
    text = json.dumps(config, indent=2) + "\n"
    (folder / CONFIG).write_text(text, encoding="utf-8")


def input_names(types: bool) -> list[str]:
    """What the tokenizer of a model with token types gives, or of one without them."""
    return ["input_ids", *(["token_type_ids"] if types else []), "attention_mask"]
