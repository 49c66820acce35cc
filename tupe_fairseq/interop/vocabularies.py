"""Dictionaries of fairseq's from the tokenizers of transformers: tokenizer.json or older files."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import DataError
from ..extras import import_extra
from ..hub.files import GPT2
from .dictionaries import MASK, SPECIAL, Entry

TOKENIZER, WORDPIECES, PAIRS = "tokenizer.json", "vocab.txt", ("vocab.json", "merges.txt")
#: BERT's symbols in the order of fairseq's first four, and the mask.
BERT_SPECIAL, BERT_MASK = ("[CLS]", "[PAD]", "[SEP]", "[UNK]"), "[MASK]"
#: fairseq's name of rows without a token.
FILLER = "madeupword{:04d}"


@dataclass(frozen=True)
class Vocabulary:
    """What a directory of fairseq's needs.

    Attributes:
        entries: of dict.txt.
        order: the row of each id in the source's embeddings; empty: they have the same order.
        files: tokenizers to write, by name.
        notes: how text becomes ids.
    """

    entries: list[Entry]
    order: list[int] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def of_roberta(folder: Path, rows: int) -> Vocabulary:
    """GPT-2's byte-pair encoding as RoBERTa has it, whose first ids are fairseq's.

    Raises:
        DataError: there is no such tokenizer, or its ids are others.
    """
    merges, tokens = _read(folder, "BPE", rows)
    if tokens[: len(SPECIAL)] != list(SPECIAL):
        raise DataError(f"the first tokens of {folder}'s tokenizer are not {', '.join(SPECIAL)}.")
    entries = [Entry(MASK if token == MASK else str(i), 1) for i, token in enumerate(tokens)]
    numbers = {token: i for i, token in enumerate(tokens) if token not in (*SPECIAL, MASK)}
    lines = "\n".join(["#version: 0.2", *merges, ""])
    files = dict(zip(GPT2, (json.dumps(numbers), lines), strict=True))
    note = "dict.txt, encoder.json and vocab.bpe are from the tokenizer: binarise with --bpe gpt2"
    return Vocabulary(entries[len(SPECIAL) :], files=files, notes=(note,))


def of_bert(folder: Path, rows: int) -> Vocabulary:
    """WordPieces. `[CLS]` becomes `<s>`, `[SEP]` `</s>`, and both begin the dictionary.

    Raises:
        DataError: there is no such tokenizer, or it lacks a symbol.
    """
    _, tokens = _read(folder, "WordPiece", rows)
    if lacking := [token for token in (*BERT_SPECIAL, BERT_MASK) if token not in tokens]:
        raise DataError(f"the tokenizer of {folder} lacks {', '.join(lacking)}.")
    first = [tokens.index(token) for token in BERT_SPECIAL]
    others = [i for i in range(rows) if i not in first]
    entries = [Entry(MASK if tokens[i] == BERT_MASK else tokens[i], 1) for i in others]
    note = (
        'dict.txt holds the WordPieces: binarise " ".join(tokenizer.tokenize(text)) with '
        "fairseq-preprocess --only-source --srcdict dict.txt"
    )
    return Vocabulary(entries, first + others, notes=(note,))


def _read(folder: Path, kind: str, rows: int) -> tuple[list[str], list[str]]:
    """The merges of a tokenizer, and a token for each row of the embeddings.

    Raises:
        UsageError: there is none of this kind, it is damaged, or it has more tokens.
    """
    library = import_extra("tokenizers", "hf")
    older = (WORDPIECES,) if kind == "WordPiece" else PAIRS
    names = (TOKENIZER,) if (folder / TOKENIZER).is_file() else older
    if not all((folder / name).is_file() for name in names):
        raise DataError(
            f"{folder} has neither {TOKENIZER} nor {' and '.join(older)}: save its tokenizer "
            "there, or give --dict."
        )
    paths = [str(folder / name) for name in names]
    try:
        if names == (TOKENIZER,):
            tokenizer = library.Tokenizer.from_file(*paths)
        else:
            tokenizer = library.Tokenizer(getattr(library.models, kind).from_file(*paths))
    # The library raises Exception itself.
    except Exception as error:
        raise DataError(f"the tokenizer of {folder} cannot be read: {error}.") from error
    found, ids = type(tokenizer.model).__name__, tokenizer.get_vocab()
    tokens = sorted(ids, key=ids.__getitem__)
    if found != kind or [ids[token] for token in tokens] != list(range(len(tokens))):
        raise DataError(
            f"the tokenizer of {folder} is not a {kind} tokenizer with ids 0, 1, 2, ..., but "
            f"{found} with {len(tokens)} tokens."
        )
    if len(tokens) > rows:
        raise DataError(
            f"the tokenizer of {folder} has {len(tokens)} tokens, but its model has {rows} rows."
        )
    tokens += [FILLER.format(i) for i in range(rows - len(tokens))]
    merges = json.loads(tokenizer.to_str())["model"].get("merges", [])
    # Older libraries join the two parts of a merge.
    return [each if isinstance(each, str) else " ".join(each) for each in merges], tokens
