"""Tokenizers of transformers: files that are carried unchanged."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import DataError
from ..base.extras import import_extra
from ..fairseq.hub.files import SENTENCEPIECE, TOKENIZER
from .carried import DICTIONARY

CONFIG = "tokenizer_config.json"
#: Files of a tokenizer that are carried unchanged.
FILES = (TOKENIZER, CONFIG, "special_tokens_map.json", "added_tokens.json")
#: Files of tokenizers without tokenizer.json.
OTHERS = ("vocab.txt", "vocab.json", "spm.model")
#: Texts of one and of two sentences, whose ids are compared where one tokenizer is fairseq's.
TEXTS = (
    ("The cafés of Zürich: 12 naïve QUESTIONS?!",),
    ("It's Éva's", "Two of THEM."),
    ("",),
    ("Ελληνικά, кириллица и ещё (x = 3.14);", "https://example.org/a_b?c=d&e"),
    ("東京タワー は 333m です。", "한국어 문장"),
    ("مرحبا بالعالم", "नमस्ते दुनिया"),
    ("🙂👍🏽 don't   stop\tnow…",),
)
#: The class of transformers that takes a tokenizer.json as it is.
GENERIC = "PreTrainedTokenizerFast"
#: Special tokens by the names of transformers, in the order of `hub.tokenizer_json.SYMBOLS`.
KINDS = ("cls", "pad", "sep", "unk", "mask")


def has_tokenizer(folder: Path) -> bool:
    """Whether a directory has a tokenizer; transformers would make one of a few symbols.

    A sentencepiece.bpe.model is XLM-RoBERTa's, but fairseq's where there is a dict.txt.
    """
    others = OTHERS if (folder / DICTIONARY).is_file() else (*OTHERS, SENTENCEPIECE)
    return any((folder / name).is_file() for name in (TOKENIZER, *others))


def files_of(folder: Path) -> dict[str, bytes]:
    """Contents of the files of a tokenizer by name."""
    return {name: (folder / name).read_bytes() for name in FILES if (folder / name).is_file()}


def read_tokenizer(folder: Path, rows: int) -> tuple[dict[str, bytes], dict[str, int]]:
    """The files of a tokenizer, and ids of special tokens by settings of `TupeConfig`.

    tokenizer.json is that of the tokenizer which transformers loads: its class, the settings in
    tokenizer_config.json and further files may change what the file says.

    Raises:
        UsageError: transformers is not installed; the tokenizer is damaged, or has more tokens
            than the model has `rows`.
    """
    library = import_extra("transformers", "hf")
    try:
        tokenizer = library.AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
        loaded = tokenizer.backend_tokenizer
        files = files_of(folder)
        if TOKENIZER not in files or parts_of(_from(files[TOKENIZER])) != parts_of(loaded):
            files[TOKENIZER] = loaded.to_str().encode()
    # The libraries raise errors of any type.
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(f"the tokenizer of {folder} cannot be read: {reason}.") from error
    count = max(tokenizer.get_vocab().values()) + 1
    if count > rows:
        raise DataError(
            f"the tokenizer of {folder} has {count} tokens, but its model has {rows} rows."
        )
    config: dict[str, Any] = {
        "model_input_names": list(tokenizer.model_input_names),
        **json.loads(files.get(CONFIG, b"{}")),
        "tokenizer_class": _class_name(tokenizer),
    }
    files[CONFIG] = (json.dumps(config, indent=2) + "\n").encode()
    ids = zip(("bos", "pad", "eos"), ("cls", "pad", "sep"), strict=True)
    numbers = {f"{here}_token_id": getattr(tokenizer, f"{there}_token_id") for here, there in ids}
    return files, {name: number for name, number in numbers.items() if number is not None}


def _from(contents: bytes) -> Any:
    """The tokenizer of a tokenizer.json."""
    return import_extra("tokenizers", "hf").Tokenizer.from_str(contents.decode())


def _class_name(tokenizer: Any) -> str:
    """The class of a tokenizer, by the name that transformers 4 knows too."""
    name = type(tokenizer).__name__
    return GENERIC if name == "TokenizersBackend" else name


def parts_of(tokenizer: Any) -> dict[str, Any]:
    """What a tokenizer of the library `tokenizers` does, by parts: vocabulary, added tokens, ...

    Without padding and truncation, which its users set.
    """
    parts: dict[str, Any] = json.loads(tokenizer.to_str())
    model = parts["model"]
    if model["type"] == "Unigram":
        # The library reads scores, which are float32, with other last digits than it writes.
        model["vocab"] = [(piece, float(np.float32(score))) for piece, score in model["vocab"]]
    return {k: v for k, v in parts.items() if k not in ("version", "padding", "truncation")}


def settings_of(tokenizer: Any) -> dict[str, Any]:
    """What a tokenizer of transformers does: its parts, special tokens, padding and truncation."""
    names = ("padding_side", "truncation_side", "model_max_length", "special_tokens_map")
    return parts_of(tokenizer.backend_tokenizer) | {
        name: getattr(tokenizer, name) for name in names
    }


def ignores_case(tokenizer: Any) -> bool:
    """Whether a tokenizer gives texts in lower case the same ids."""
    return all(
        tokenizer.encode(text).ids == tokenizer.encode(text.lower()).ids for text, *_ in TEXTS
    )


def config_of(names: Mapping[str, str], longest: int, types: bool) -> bytes:
    """A tokenizer_config.json with which transformers takes a tokenizer.json as it is.

    Args:
        names: special tokens: "bos", "pad", ...
        longest: the longest text in tokens.
        types: whether the model has token types.
    """
    config = {
        "tokenizer_class": GENERIC,
        **{f"{kind}_token": name for kind, name in names.items()},
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", *["token_type_ids"] * types, "attention_mask"],
        "model_max_length": longest,
    }
    return (json.dumps(config, indent=2) + "\n").encode()
