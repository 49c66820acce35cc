"""Dictionaries of fairseq's from the tokenizers of transformers."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary

from ..errors import DataError
from ..extras import import_extra
from ..hub.files import GPT2, TOKENIZER, find_tokenizer
from ..hub.tokenizer_json import SYMBOLS, load_tokenizer
from .dictionaries import MASK, dictionary_of

#: fairseq's name of rows without a token.
FILLER = "madeupword{:04d}"


@dataclass(frozen=True)
class Vocabulary:
    """What a directory of fairseq's needs.

    Attributes:
        dictionary: fairseq's.
        order: the row of each id in the source's embeddings; empty: they have the same order.
        files: tokenizers to write, by name.
        notes: how text becomes ids.
    """

    dictionary: Dictionary
    order: list[int] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_tokenizer(folder: Path) -> tuple[Any, dict[str, Any]]:
    """The tokenizer of a directory, and the model of its tokenizer.json.

    Raises:
        UsageError: transformers is not installed; there is no tokenizer, or it is damaged.
    """
    library = import_extra("transformers", "hf")
    try:
        tokenizer = library.AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
        # Without any of these files, transformers makes a tokenizer of a few symbols.
        if not any((folder / name).is_file() for name in tokenizer.vocab_files_names.values()):
            raise FileNotFoundError("there is none")
        return tokenizer, json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    # The libraries raise errors of any type.
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(
            f"the tokenizer of {folder} cannot be read ({reason}): save it there, or give --dict."
        ) from error


def vocabulary_of(folder: Path, rows: int, masked: bool = True) -> Vocabulary:
    """The tokens of a tokenizer, with [CLS], padding, [SEP] and the unknown token put first.

    A byte-pair encoding of bytes, as RoBERTa has it, becomes the files of `--bpe gpt2`, whose
    symbols are numbers. sentencepiece's unigrams, as DeBERTa-v3 has them, become tokenizer.json.

    Raises:
        UsageError: see `read_tokenizer`; it has more tokens than `rows`, or lacks a special one,
            which the mask is only to `masked` language models.
    """
    tokenizer, model = read_tokenizer(folder)
    tokens = {number: token for token, number in tokenizer.get_vocab().items()}
    if max(tokens) >= rows:
        raise DataError(
            f"the tokenizer of {folder} has {max(tokens) + 1} tokens, but its model has {rows} "
            "rows."
        )
    *first, mask = _special_ids(tokenizer, folder, masked)
    others = [number for number in range(rows) if number not in first]
    numbered = model["type"] in ("BPE", "Unigram")
    names = {n: str(n) if numbered else tokens.get(n, FILLER.format(n)) for n in others}
    names |= {} if mask is None else {mask: MASK}
    dictionary = dictionary_of(names.values())
    if not numbered:
        note = (
            "dict.txt holds the tokenizer's tokens: binarise "
            '" ".join(tokenizer.tokenize(text)) with '
            "fairseq-preprocess --only-source --srcdict dict.txt"
        )
        return Vocabulary(dictionary, first + others, notes=(note,))
    if model["type"] == "Unigram":
        note = "dict.txt holds the ids of tokenizer.json: binarise with --bpe tokenizer_json"
        files = {TOKENIZER: tokenizer.backend_tokenizer.to_str()}
        return Vocabulary(dictionary, first + others, files, (note,))
    numbers = {tokens[number]: number for number in others if number in tokens and number != mask}
    # Older libraries join the two parts of a merge.
    merges = [each if isinstance(each, str) else " ".join(each) for each in model["merges"]]
    texts = (json.dumps(numbers), "\n".join(["#version: 0.2", *merges, ""]))
    note = "dict.txt, encoder.json and vocab.bpe are from the tokenizer: binarise with --bpe gpt2"
    files = dict(zip(GPT2, texts, strict=True))
    return Vocabulary(dictionary, first + others, files, (note,))


def _special_ids(tokenizer: Any, folder: Path, masked: bool) -> list[Any]:
    """Ids of [CLS], padding, [SEP], the unknown token and the mask; None without a mask."""
    kinds = ("cls", "pad", "sep", "unk", "mask")
    ids = {kind: getattr(tokenizer, f"{kind}_token_id") for kind in kinds}
    if lacking := [k for k in kinds if ids[k] is None and (masked or k != "mask")]:
        raise DataError(
            f"the tokenizer of {folder} lacks the special tokens: {', '.join(lacking)}."
        )
    return [*ids.values()]


def order_of(folder: Path, rows: int) -> list[int]:
    """`Vocabulary.order` of a converted directory; empty unless tokenizer.json is its tokenizer.

    Raises:
        UsageError: see `load_tokenizer`.
    """
    if not (folder / TOKENIZER).is_file() or find_tokenizer(folder)["bpe"] != "tokenizer_json":
        return []
    tokenizer = load_tokenizer(folder / TOKENIZER)
    first = [tokenizer.token_to_id(symbol) for symbol in [*SYMBOLS][:4]]
    return first + [number for number in range(rows) if number not in first]


def write_config(folder: Path, kind: str, longest: int) -> None:
    """Write tokenizer_config.json beside the tokenizer.json of DeBERTa."""
    first, padding, last, unknown, mask = SYMBOLS
    own = "DebertaV2Tokenizer" if kind == "deberta-v2" else "PreTrainedTokenizerFast"
    config = {
        "tokenizer_class": own,
        **{"bos_token": first, "cls_token": first, "eos_token": last, "sep_token": last},
        **{"pad_token": padding, "unk_token": unknown, "mask_token": mask},
        "clean_up_tokenization_spaces": False,
        "model_max_length": longest,
    }
    text = json.dumps(config, indent=2) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
