"""Tiny sentencepiece models."""

from collections.abc import Iterable
from pathlib import Path

import sentencepiece
from fairseq.data import Dictionary

from tupe_fairseq.convert.dictionaries import dictionary_of

MOVIE = ["a good movie ."] * 9


def train(
    folder: Path, text: Iterable[str] = MOVIE, vocab_size: int = 40, **settings
) -> sentencepiece.SentencePieceProcessor:
    """Train a model, and write it where converters look for it."""
    prefix = str(folder / "sentencepiece.bpe")
    settings = {"model_type": "bpe", "hard_vocab_limit": False, "minloglevel": 2, **settings}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_prefix=prefix, vocab_size=vocab_size, **settings
    )
    return sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")


def dictionary_of_pieces(model: sentencepiece.SentencePieceProcessor) -> Dictionary:
    """A dictionary of all pieces in their order."""
    return dictionary_of(model.id_to_piece(i) for i in range(3, len(model)))
