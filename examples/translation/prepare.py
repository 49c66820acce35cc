"""Multi30k, or any parallel text of that form, as fairseq reads it: one vocabulary of pieces.

    python examples/translation/prepare.py SOURCE OUT

SOURCE holds {train,val,test_2016_flickr}.{en,de}, as they are or with .gz, a sentence a line. In
OUT:

    text/     SPLIT.en, SPLIT.de (SPLIT: train, valid, test), as they were
    pieces/   the same in pieces, and sentencepiece.bpe.model, trained on both languages
    data/     what fairseq-preprocess makes of the pieces, with one dictionary

What is there already is kept.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sentencepiece

from tupe_fairseq import UsageError

SPLITS = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
LANGUAGES = ("en", "de")
TOKENIZER = "sentencepiece.bpe.model"


def read_lines(folder: Path, name: str) -> list[str]:
    """Lines of a file or of its .gz.

    Raises:
        UsageError: there is none, it is no text, or a line is empty.
    """
    plain, packed = folder / name, folder / f"{name}.gz"
    try:
        raw = plain.read_bytes() if plain.is_file() else gzip.decompress(packed.read_bytes())
        # Not splitlines(): that would also break lines at rarer separators.
        lines = raw.decode("utf-8").removesuffix("\n").split("\n")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {plain} or {packed.name}: {error}.") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            raise UsageError(f"{name}, line {number} is empty: a sentence must stand there.")
    return lines


def write_text(source: Path, out: Path) -> None:
    """Copy the splits.

    Raises:
        UsageError: the two sides of a split have not as many lines.
    """
    for split, name in SPLITS.items():
        sides = {language: read_lines(source, f"{name}.{language}") for language in LANGUAGES}
        counts = {language: len(lines) for language, lines in sides.items()}
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{name}.{key} has {count} lines" for key, count in counts.items())
            raise UsageError(f"{told}: each line must be the translation of the other's.")
        for language, lines in sides.items():
            _write(out / f"{split}.{language}", lines)


def write_pieces(text: Path, out: Path, vocabulary: int) -> None:
    """Train the vocabulary on both sides of the training text, and cut all text with it.

    Raises:
        UsageError: the text has not as many pieces.
    """
    try:
        sentencepiece.SentencePieceTrainer.train(
            input=",".join(str(text / f"train.{language}") for language in LANGUAGES),
            model_prefix=str(out / TOKENIZER.removesuffix(".model")),
            vocab_size=vocabulary,
            model_type="bpe",
            character_coverage=1.0,
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = str(error).rsplit("] ", 1)[-1].strip()
        raise UsageError(f"--vocabulary is {vocabulary}, but sentencepiece: {reason}") from error
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(out / TOKENIZER))
    for split in SPLITS:
        for language in LANGUAGES:
            lines = read_lines(text, f"{split}.{language}")
            cut = pieces.encode(lines, out_type=str)
            _write(out / f"{split}.{language}", [" ".join(line) for line in cut])


def binarise(pieces: Path, out: Path) -> None:
    """fairseq-preprocess with one dictionary.

    Raises:
        UsageError: it failed.
    """
    command = [sys.executable, "-m", "fairseq_cli.preprocess", "--joined-dictionary"]
    command += ["--source-lang", LANGUAGES[0], "--target-lang", LANGUAGES[1]]
    command += [f"--{split}pref={pieces / split}" for split in SPLITS]
    ended = subprocess.run(
        [*command, "--destdir", str(out)], capture_output=True, text=True, check=False
    )
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or [f"status {ended.returncode}"])[-1]
        raise UsageError(f"fairseq-preprocess failed: {last}")


def prepare(source: Path, out: Path, vocabulary: int) -> None:
    """All three steps; those that are done are left."""
    with _step(out / "text") as folder:
        if folder is not None:
            write_text(source, folder)
    with _step(out / "pieces") as folder:
        if folder is not None:
            write_pieces(out / "text", folder, vocabulary)
    with _step(out / "data") as folder:
        if folder is not None:
            binarise(out / "pieces", folder)


@contextmanager
def _step(folder: Path) -> Iterator[Path | None]:
    """Yields a folder that becomes this one at the end, or None where this one is there."""
    if folder.is_dir():
        yield None
        return
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    yield partial
    partial.rename(folder)


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("source", type=Path, help="parallel text")
    parser.add_argument("out", type=Path, help="directory of the results")
    parser.add_argument("--vocabulary", type=int, default=6000, help="pieces of both languages")
    arguments = parser.parse_args()
    prepare(arguments.source, arguments.out, arguments.vocabulary)


if __name__ == "__main__":
    try:
        main()
    except UsageError as error:
        sys.exit(f"error: {error}")
