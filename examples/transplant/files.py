"""The directory of a source, and those of the result."""

import shutil
from pathlib import Path

from tupe_fairseq import UsageError
from tupe_fairseq.convert import directory
from tupe_fairseq.convert.formats import huggingface
from tupe_fairseq.convert.models import Converted
from tupe_fairseq.convert.tokenizer_files import has_tokenizer

#: Folders of the result, in the order in which they are written.
RESULTS = ("transformers", "fairseq")


def read_source(folder: Path) -> Converted:
    """A directory of transformers.

    Raises:
        UsageError: it is none, cannot be converted, or has no tokenizer.
    """
    if not (folder / "config.json").is_file():
        raise UsageError(
            f"SOURCE is {str(folder)!r}, but must be a directory of transformers, with "
            "config.json."
        )
    source = huggingface.read(folder)
    if not has_tokenizer(folder):
        raise UsageError(
            f"SOURCE is {str(folder)!r}, but has no tokenizer.json: save the tokenizer there, by "
            "AutoTokenizer.from_pretrained(NAME).save_pretrained(SOURCE)."
        )
    return source


def write(converted: Converted, out: Path) -> list[str]:
    """Write OUT/transformers and OUT/fairseq; return notes, each with the name of its folder."""
    first, last = (out / name for name in RESULTS)
    # Those of an interrupted call, or of fewer updates; without the last, the result is not whole.
    for folder in (last, first):
        shutil.rmtree(folder, ignore_errors=True)
    converted.notes = []
    huggingface.write(converted, first, classes="tupe", head=converted.head)
    notes = [f"{first.name}: {note}" for note in converted.notes]
    converted.notes = []
    directory.write(converted, last)
    return notes + [f"{last.name}: {note}" for note in converted.notes]
