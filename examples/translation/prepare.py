"""Prepare Multi30k, or other parallel text of its form, with one vocabulary of pieces.

    python -m examples.translation.prepare SOURCE OUT [--languages SOURCE,TARGET]

SOURCE holds {train,val,test_2016_flickr}.{en,de}, or these with .gz, one sentence per line; the
names may also be `valid` and `test`. OUT gets

    text/     SPLIT.en, SPLIT.de (SPLIT: train, valid, test), unchanged
    pieces/   the same in pieces, and sentencepiece.bpe.model, trained on both languages
    data/     the output of fairseq-preprocess, with one dictionary
"""

import argparse
import gzip
import io
import zlib
from pathlib import Path

from fairseq import options
from fairseq_cli import preprocess

from examples.shared import pieces, script
from examples.shared.pieces import MODEL as TOKENIZER
from tupe_fairseq import UsageError
from tupe_fairseq.base.texts import decoded

#: Split -> names of its files, of which the first that exists is read.
SPLITS = {"train": ("train",), "valid": ("val", "valid"), "test": ("test_2016_flickr", "test")}
#: Source and target.
LANGUAGES = "en,de"


def read_lines(folder: Path, name: str) -> list[str]:
    """Lines of a file or of its .gz.

    Raises:
        UsageError: the file does not exist, is not UTF-8, or has an empty line.
    """
    plain = folder / name
    packed = folder / f"{name}.gz"
    try:
        raw = plain.read_bytes() if plain.is_file() else gzip.decompress(packed.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"cannot read {plain} or {packed.name}: {error}.") from error
    lines = list(decoded(io.BytesIO(raw), str(plain))) or [""]
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            raise UsageError(f"{name}, line {number} is empty, but must be a sentence.")
    return lines


def pair(languages: str) -> list[str]:
    """Source and target.

    Raises:
        UsageError: not two different languages.
    """
    found = languages.split(",")
    if len(found) != 2 or len(set(found)) < 2 or not all(found):
        raise UsageError(f"--languages is {languages!r}, but must be like {LANGUAGES}.")
    return found


def write_text(source: Path, out: Path, languages: list[str]) -> None:
    """Copy the splits.

    Raises:
        UsageError: the two sides of a split differ in their number of lines.
    """
    for split, names in SPLITS.items():
        name = next((name for name in names if any(source.glob(f"{name}.*"))), names[0])
        sides = {language: read_lines(source, f"{name}.{language}") for language in languages}
        counts = {language: len(lines) for language, lines in sides.items()}
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{name}.{key} has {count} lines" for key, count in counts.items())
            raise UsageError(f"{told}: line by line they must be translations of each other.")
        for language, lines in sides.items():
            _write(out / f"{split}.{language}", lines)


def write_pieces(text: Path, out: Path, vocabulary: int, languages: list[str]) -> None:
    """Train the vocabulary on both sides of the training text, and split all text with it."""
    model = out / TOKENIZER
    both = [text / f"train.{language}" for language in languages]
    pieces.train(both, model, vocabulary, "--vocabulary", character_coverage=1.0)
    for split in SPLITS:
        for language in languages:
            lines = read_lines(text, f"{split}.{language}")
            _write(out / f"{split}.{language}", pieces.encode(model, lines))


def binarise(symbols: Path, out: Path, languages: list[str]) -> None:
    """fairseq-preprocess with one dictionary."""
    flags = ["--joined-dictionary", "--destdir", str(out)]
    flags += ["--source-lang", languages[0], "--target-lang", languages[1]]
    flags += [f"--{split}pref={symbols / split}" for split in SPLITS]
    preprocess.main(options.get_preprocessing_parser().parse_args(flags))


def prepare(source: Path, out: Path, vocabulary: int, languages: str = LANGUAGES) -> None:
    """All three steps."""
    both = pair(languages)
    for name in ("text", "pieces"):
        (out / name).mkdir(parents=True, exist_ok=True)
    write_text(source, out / "text", both)
    write_pieces(out / "text", out / "pieces", vocabulary, both)
    binarise(out / "pieces", out / "data", both)


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("source", type=Path, help="folder of the parallel text")
    parser.add_argument("out", type=Path, help="directory of the results")
    parser.add_argument("--vocabulary", type=int, default=6000, help="pieces of both languages")
    parser.add_argument("--languages", default=LANGUAGES, help="source and target (en,de)")
    arguments = parser.parse_args()
    prepare(arguments.source, arguments.out, arguments.vocabulary, arguments.languages)


if __name__ == "__main__":
    script.run(main)
