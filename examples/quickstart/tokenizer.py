"""Train a sentencepiece vocabulary on the pre-training text and split all text into its pieces.

Run as `python tokenizer.py TEXT OUT`, where TEXT is the folder that prepare.py wrote. It writes
into OUT:

    sentencepiece.bpe.model, .vocab      the vocabulary, BPE
    pretrain.train, pretrain.valid, train.input0, valid.input0, test.input0
                                         the text, its pieces separated by spaces
"""

from __future__ import annotations

import sys
from pathlib import Path

import sentencepiece

#: Most words stay whole, which the classification gains from.
VOCABULARY = 8000
FILES = ("pretrain.train", "pretrain.valid", "train.input0", "valid.input0", "test.input0")


def train(text: Path, prefix: Path, size: int) -> None:
    """Train a vocabulary on a text file of one snippet a line, into `PREFIX.model` and `.vocab`.

    Raises:
        RuntimeError: the text is too short for so large a vocabulary.
    """
    sentencepiece.SentencePieceTrainer.train(
        input=str(text),
        model_prefix=str(prefix),
        model_type="bpe",
        vocab_size=size,
        # Every character of the text: it has few, and an unknown one could not be decoded.
        character_coverage=1.0,
        minloglevel=1,
    )


def encode(model: Path, lines: list[str]) -> list[str]:
    """The pieces of each line, as fairseq's `--bpe sentencepiece` splits it."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    return [" ".join(pieces) for pieces in processor.encode(lines, out_type=str, num_threads=-1)]


def main(text: str, out: str) -> None:
    """See the module's text."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    prefix = folder / "sentencepiece.bpe"
    train(Path(text, FILES[0]), prefix, VOCABULARY)
    for name in FILES:
        lines = Path(text, name).read_text(encoding="utf-8").splitlines()
        pieces = encode(prefix.with_name("sentencepiece.bpe.model"), lines)
        (folder / name).write_text("".join(f"{line}\n" for line in pieces), encoding="utf-8")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (RuntimeError, OSError) as error:
        sys.exit(f"error: {error}")
