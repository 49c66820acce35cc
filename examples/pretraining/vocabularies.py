"""Vocabularies of fairseq's tokenizers, and their dictionaries."""

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from fairseq.data import Dictionary
from fairseq.data.encoders.gpt2_bpe_utils import get_encoder

from examples.shared import pieces
from tupe_fairseq import DataError, UsageError
from tupe_fairseq.base.files import replacing
from tupe_fairseq.convert.sentencepiece_models import unsupported


class Vocabulary(NamedTuple):
    """A tokenizer.

    Attributes:
        symbols: those in fairseq's dictionary, by their ids in the tokenizer.
        ids: from lines to the tokenizer's ids.
        split: from a line to symbols separated by spaces.
    """

    symbols: dict[int, str]
    ids: Callable[[list[str]], list[list[int]]]
    split: Callable[[str], str]


def load_sentencepiece(model: Path) -> Vocabulary:
    """The vocabulary of fairseq's `--bpe sentencepiece`.

    Raises:
        UsageError: the file is not a sentencepiece model.
    """
    processor = pieces.load(model)
    special = (processor.is_unknown, processor.is_control)
    ids = [i for i in range(len(processor)) if not any(test(i) for test in special)]
    return Vocabulary(
        {i: processor.id_to_piece(i) for i in ids},
        lambda lines: processor.encode(lines, out_type=int, num_threads=1),
        lambda line: " ".join(processor.encode(line, out_type=str)),
    )


def note_unsupported(model: Path) -> None:
    """Say what transformers will not get of a vocabulary, before a model is trained with it."""
    # Without protobuf, its contents are not known.
    with suppress(DataError):
        if reason := unsupported(model):
            told = "fairseq can use it, but its models get no tokenizer.json for transformers."
            print(f"note: {model} has {reason}. {told}", file=sys.stderr)


def load_gpt2(folder: Path) -> Vocabulary:
    """The vocabulary of fairseq's `--bpe gpt2`, whose symbols are numbers.

    Raises:
        UsageError: the folder lacks a file.
    """
    names = ("encoder.json", "vocab.bpe")
    found = [[folder / name, folder / f"gpt2_bpe_{name}"] for name in names]
    paths = [next(filter(Path.is_file, both), None) for both in found]
    if None in paths:
        raise UsageError(f"--gpt2-bpe is {str(folder)!r}, but lacks encoder.json or vocab.bpe.")
    bpe = get_encoder(*map(str, paths))
    return Vocabulary(
        {number: str(number) for number in sorted(bpe.encoder.values())},
        lambda lines: [bpe.encode(line) for line in lines],
        lambda line: " ".join(map(str, bpe.encode(line))),
    )


def write_dictionary(vocabulary: Vocabulary, path: Path) -> None:
    """Write fairseq's dictionary: a symbol and a count per line; the counts are not used.

    Raises:
        UsageError: fairseq cannot read it.
    """
    lines = "".join(f"{symbol} 1\n" for symbol in vocabulary.symbols.values())
    with replacing(path) as aside:
        aside.write_text(lines, encoding="utf-8")
        try:
            Dictionary.load(str(aside))
        except RuntimeError as error:
            reason = str(error).partition(". ")[0]
            raise UsageError(f"fairseq cannot use this vocabulary: {reason}.") from error


def table_of(vocabulary: Vocabulary, dictionary: Dictionary) -> np.ndarray:
    """The dictionary's ids by those of the tokenizer; -1 where that is not exactly one."""
    table = np.full(max(vocabulary.symbols) + 1, -1)
    for number, symbol in vocabulary.symbols.items():
        found = dictionary.encode_line(symbol, add_if_not_exist=False, append_eos=False)
        if len(found) == 1:
            table[number] = found
    return table
