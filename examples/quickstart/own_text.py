"""Split a text of one's own into fairseq's text files for pre-training.

    python -m examples.quickstart.own_text FILE OUT

FILE holds a sentence or a paragraph per line, in UTF-8. OUT gets pretrain.train and
pretrain.valid, in lower case, as prepare.py writes them. One line in twenty is held out for
validation; its checksum decides.
"""

import sys
from pathlib import Path

from examples.quickstart.prepare import clean, split_pretraining, write_lines
from examples.shared import script
from tupe_fairseq import UsageError
from tupe_fairseq.base.texts import read_lines

#: Most bytes: the text is in memory, several times.
LARGEST = 256_000_000
#: Lines at least. With fewer, validation has too few tokens to tell two models apart.
LINES = 200


def read(file: Path) -> list[str]:
    """The lines that are not empty, cleaned.

    Raises:
        UsageError: the file is too large or not UTF-8, or has too few lines.
    """
    if (size := file.stat().st_size) > LARGEST:
        raise UsageError(
            f"--text is {str(file)!r}, which has {size / 1e6:,.0f} MB. The quickstart takes no "
            f"more than {LARGEST / 1e6:.0f} MB; for larger texts see "
            "examples/pretraining/README.md."
        )
    lines = read_lines(file, f"--text is {str(file)!r}")
    texts = [text for line in lines if (text := clean(line))]
    if len(texts) < LINES:
        raise UsageError(
            f"--text is {str(file)!r} with {len(texts)} lines, but at least {LINES} are needed, "
            "with a sentence or a paragraph each."
        )
    return texts


def main() -> None:
    """See the module's docstring."""
    file, out = map(Path, sys.argv[1:])
    splits = split_pretraining(read(file), held_out=())
    out.mkdir(parents=True, exist_ok=True)
    for split, kept in splits.items():
        write_lines(out / f"pretrain.{split}", kept)


if __name__ == "__main__":
    script.run(main)
