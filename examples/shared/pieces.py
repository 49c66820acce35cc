"""Vocabularies of sentencepiece."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import sentencepiece

from tupe_fairseq import UsageError
from tupe_fairseq.base.files import replacing

#: The name under which fairseq and the hub interface look for it.
MODEL = "sentencepiece.bpe.model"
#: Bytes; sentencepiece leaves out longer lines, by default those of more than 4,192.
LONGEST = 1 << 20


def train(texts: Iterable[Path], model: Path, size: int, flag: str, **options: Any) -> None:
    """Train a BPE vocabulary.

    Args:
        texts: one sentence per line.
        model: file to write.
        size: number of symbols.
        flag: by which the user chose the size, for the error message.
        **options: further ones of sentencepiece; they win.

    Raises:
        UsageError: the text is too short for so large a vocabulary, for instance.
    """
    with replacing(model) as aside:
        try:
            with aside.open("wb") as out:
                sentencepiece.SentencePieceTrainer.train(
                    input=[*map(str, texts)],
                    model_writer=out,
                    model_type="bpe",
                    vocab_size=size,
                    minloglevel=1,
                    **{"max_sentence_length": LONGEST, **options},
                )
        except RuntimeError as error:
            reason = str(error).rsplit("] ", 1)[-1].strip() or str(error).strip()
            raise UsageError(f"{flag} is {size}, but sentencepiece says: {reason}") from error


def load(model: Path) -> sentencepiece.SentencePieceProcessor:
    """Load a vocabulary.

    Raises:
        UsageError: the file is not a sentencepiece model.
    """
    try:
        return sentencepiece.SentencePieceProcessor(model_file=str(model))
    except (RuntimeError, OSError) as error:
        raise UsageError(f"{model} is not a sentencepiece model.") from error


def encode(model: Path, lines: list[str]) -> list[str]:
    """The pieces of each line, separated by spaces, as with fairseq's `--bpe sentencepiece`."""
    return [" ".join(pieces) for pieces in load(model).encode(lines, out_type=str, num_threads=-1)]
