"""Dictionaries of fairseq's from the tokenizers of transformers: tokenizer.json or older files."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import DataError
from .dictionaries import MASK, SPECIAL, Entry
from .tokenizer_json import GPT2

TOKENIZER, WORDPIECES, PAIRS = "tokenizer.json", "vocab.txt", ("vocab.json", "merges.txt")
#: BERT's symbols in the order of fairseq's first four, and the mask.
BERT_SPECIAL, BERT_MASK = ("[CLS]", "[PAD]", "[SEP]", "[UNK]"), "[MASK]"
#: fairseq's name of rows without a word.
FILLER = "madeupword{:04d}"


class Vocabulary(NamedTuple):
    """What a directory of fairseq's needs.

    Attributes:
        entries: of dict.txt.
        order: the row of each id in the source's word embeddings.
        files: tokenizers to write, by name.
        note: how text becomes ids.
    """

    entries: list[Entry]
    order: list[int]
    files: dict[str, str]
    note: str


def of_roberta(folder: Path, rows: int) -> Vocabulary:
    """GPT-2's byte-pair encoding as RoBERTa has it, whose first ids are fairseq's.

    Raises:
        DataError: there is no such tokenizer, or its ids are others.
    """
    merges, words = _read(folder, "BPE")
    if words[: len(SPECIAL)] != list(SPECIAL):
        raise DataError(f"the first words of {folder}'s tokenizer are not {', '.join(SPECIAL)}.")
    words = _filled(words, rows, folder)
    entries = [Entry(MASK if word == MASK else str(i), 1) for i, word in enumerate(words)]
    numbers = {word: i for i, word in enumerate(words) if word not in (*SPECIAL, MASK)}
    lines = "\n".join(["#version: 0.2", *merges, ""])
    files = dict(zip(GPT2, (json.dumps(numbers), lines), strict=True))
    note = "dict.txt, encoder.json and vocab.bpe are from the tokenizer: binarise with --bpe gpt2"
    return Vocabulary(entries[len(SPECIAL) :], list(range(rows)), files, note)


def of_bert(folder: Path, rows: int) -> Vocabulary:
    """WordPieces. `[CLS]` becomes `<s>`, `[SEP]` `</s>`, and both begin the dictionary.

    Raises:
        DataError: there is no such tokenizer, or it lacks a symbol.
    """
    _, words = _read(folder, "WordPiece")
    if lacking := [word for word in (*BERT_SPECIAL, BERT_MASK) if word not in words]:
        raise DataError(f"the tokenizer of {folder} lacks {', '.join(lacking)}.")
    words = _filled(words, rows, folder)
    first = [words.index(word) for word in BERT_SPECIAL]
    others = [i for i in range(rows) if i not in first]
    entries = [Entry(MASK if words[i] == BERT_MASK else words[i], 1) for i in others]
    note = (
        'dict.txt holds the WordPieces: binarise " ".join(tokenizer.tokenize(text)) with '
        "fairseq-preprocess --only-source --srcdict dict.txt"
    )
    return Vocabulary(entries, first + others, {}, note)


def _read(folder: Path, kind: str) -> tuple[list[str], list[str]]:
    """The merges of a tokenizer, and its words in the order of their ids.

    Raises:
        DataError: there is none of this kind, or it is damaged.
    """
    try:
        merges, ids = _read_tokenizer(folder, kind)
        words = sorted(ids, key=ids.__getitem__)
        if [ids[word] for word in words] != list(range(len(words))):
            raise ValueError("its ids are not 0, 1, 2, ...")
        if broken := [word for word in words if not word or set(word) & set(" \n\r")]:
            raise ValueError(f"it has the word {broken[0]!r}")
    except OSError as error:
        older = WORDPIECES if kind == "WordPiece" else " and ".join(PAIRS)
        raise DataError(
            f"{folder} has neither {TOKENIZER} nor {older}: save its tokenizer there, or give "
            "--dict."
        ) from error
    except (ArithmeticError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"the tokenizer of {folder} is not a {kind} tokenizer: {error}."
        ) from error
    return merges, words


def _read_tokenizer(folder: Path, kind: str) -> tuple[list[str], dict[str, int]]:
    path = folder / TOKENIZER
    if path.is_file():
        whole = json.loads(path.read_text(encoding="utf-8"))
        model = whole["model"]
        if model.get("type", kind) != kind:
            raise ValueError(f"its type is {model['type']!r}")
        added = {each["content"]: int(each["id"]) for each in whole.get("added_tokens") or ()}
        ids = {str(word): int(i) for word, i in (model["vocab"] | added).items()}
        return [_line(merge) for merge in model.get("merges") or ()], ids
    if kind == "WordPiece":
        words = (folder / WORDPIECES).read_text(encoding="utf-8").splitlines()
        return [], {word: i for i, word in enumerate(words)}
    vocabulary, merges = ((folder / name).read_text(encoding="utf-8") for name in PAIRS)
    lines = [line for line in merges.split("\n") if line and not line.startswith("#version")]
    return lines, dict(json.loads(vocabulary))


def _line(merge: Any) -> str:
    """The two parts of a merge, which older files join."""
    return merge if isinstance(merge, str) else " ".join(map(str, merge))


def _filled(words: list[str], rows: int, folder: Path) -> list[str]:
    """As many words as the embeddings have rows, which may be more.

    Raises:
        DataError: they are fewer.
    """
    if len(words) > rows:
        raise DataError(
            f"the tokenizer of {folder} has {len(words)} words, but its model has {rows} rows."
        )
    return words + [FILLER.format(i) for i in range(rows - len(words))]
