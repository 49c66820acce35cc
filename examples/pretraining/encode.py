"""Clean lines -> the input of fairseq-train, or lines of subword symbols for fairseq-preprocess.

    python -m examples.pretraining.encode TEXT --out DIRECTORY --sentencepiece 32000 --binarise
    python -m examples.pretraining.encode TEXT --out DIRECTORY --sentencepiece FILE.model
    python -m examples.pretraining.encode TEXT --out DIRECTORY --gpt2-bpe FOLDER

TEXT is the output of clean.py. The first form trains a sentencepiece vocabulary (BPE) of that size
on train.txt, the second uses an existing one; DIRECTORY gets it as sentencepiece.bpe.model, which
later belongs beside the checkpoint. The third uses GPT-2's: FOLDER holds encoder.json and
vocab.bpe (or gpt2_bpe_encoder.json and gpt2_bpe_vocab.bpe). Nothing is downloaded.

DIRECTORY gets `dict.txt` with all symbols of the vocabulary. A dictionary made from the text would
differ from text to text, and contain rare characters that are not symbols. With `--binarise` it
also gets `train.bin`, `train.idx`, `valid.bin` and `valid.idx`, otherwise `train` and `valid`,
symbols separated by spaces, of which fairseq-preprocess makes the same files; and the
`preprocessing.json` of TEXT, by which `from_pretrained` lowercases texts as clean.py did.

Parts of the text are encoded in parallel, into DIRECTORY/parts-*, and joined. Each file is written
atomically; a second call encodes the missing parts. The memory does not grow with the text.
"""

import argparse
import io
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from fairseq.data import Dictionary
from tqdm import tqdm

from examples.pretraining import clean
from examples.pretraining.vocabularies import (
    Vocabulary,
    load_gpt2,
    load_sentencepiece,
    note_unsupported,
    table_of,
    write_dictionary,
)
from examples.shared import pieces, script
from examples.shared.binarised import binarised, join
from examples.shared.pieces import MODEL
from examples.shared.workers import Results, pool
from tupe_fairseq import DataError, UsageError
from tupe_fairseq.base.files import replacing
from tupe_fairseq.base.kept_settings import keep
from tupe_fairseq.base.machine import cores
from tupe_fairseq.base.texts import decoded, read_lines
from tupe_fairseq.fairseq.hub.files import PREPROCESSING

SPLITS = ("train", "valid")
#: Bytes of text that a process encodes at a time.
PART = 1 << 22
#: Lines that sentencepiece reads, a random sample, which limits the memory.
SAMPLE = 5_000_000


#: Those of this process.
_vocabulary: Vocabulary
_dictionary: Dictionary
_table: np.ndarray


def write_ids(prefix: Path, lines: list[str]) -> None:
    """Binarise lines; those with an unknown symbol as fairseq-preprocess does."""
    end = _dictionary.eos()
    with binarised(prefix, len(_dictionary)) as builder:
        for line, numbers in zip(lines, _vocabulary.ids(lines), strict=True):
            ids = np.append(_table[np.array(numbers, dtype=int)], end)
            if ids.min() < 0:
                symbols = _vocabulary.split(line)
                builder.add_item(_dictionary.encode_line(symbols, add_if_not_exist=False))
            else:
                builder.add_item(torch.from_numpy(ids))


def write_symbols(path: Path, lines: list[str]) -> None:
    """Write lines of symbols."""
    with replacing(path) as aside, aside.open("w", encoding="utf-8") as out:
        out.writelines(f"{_vocabulary.split(line)}\n" for line in lines)


class Format(NamedTuple):
    """How a split is written: the suffix of its last file, from lines to a part, from parts."""

    suffix: str
    write: Callable[[Path, list[str]], None]
    join: Callable[[list[Path], Path], None]


BINARY = Format(".idx", write_ids, join)
SYMBOLS = Format("", write_symbols, clean.join)


def encode_file(source: Path, target: Path, form: Format, results: Results) -> None:
    """Encode a file in parts, unless it was encoded; then remove the parts.

    Args:
        source: text.
        target: file or prefix, written atomically.
        form: of the output.
        results: of a pool whose processes have loaded the vocabulary.
    """
    folder = target.with_name(f"parts-{target.name}{form.suffix}")
    if not Path(f"{target}{form.suffix}").exists():
        folder.mkdir(exist_ok=True)
        jobs = [(source, *ends, folder / "{}-{}".format(*ends), form) for ends in ranges(source)]
        bar = {"desc": f"encode {source.stem}", "unit": "B", "unit_scale": True}
        with tqdm(total=source.stat().st_size, **bar) as progress:
            for read in results(_encode_part, jobs):
                progress.update(read)
        form.join([part for *_, part, _ in jobs], target)
    shutil.rmtree(folder, ignore_errors=True)


def ranges(source: Path) -> Iterator[tuple[int, int]]:
    """First and last byte of parts that consist of whole lines; at least one part."""
    size = source.stat().st_size
    ends = {size}
    with source.open("rb") as text:
        for place in range(PART, size, PART):
            text.seek(place - 1)
            text.readline()
            ends.add(text.tell())
    return pairwise([0, *sorted(ends)])


def _encode_part(job: tuple[Path, int, int, Path, Format]) -> int:
    source, begin, end, part, form = job
    if not Path(f"{part}{form.suffix}").exists():
        with source.open("rb") as text:
            text.seek(begin)
            contents = io.BytesIO(text.read(end - begin))
        try:
            lines = list(decoded(contents, str(source)))
        except DataError:
            # The number of a line is that in the whole file.
            deque(read_lines(source), maxlen=0)
            raise
        form.write(part, lines)
    return end - begin


def _start_worker(load: Callable[[Path], Vocabulary], path: Path, words: Path) -> None:
    global _vocabulary, _dictionary, _table
    _vocabulary = load(path)
    _dictionary = Dictionary.load(str(words))
    _table = table_of(_vocabulary, _dictionary)


def keep_settings(arguments: argparse.Namespace) -> None:
    """Refuse to mix symbols of another text or vocabulary with those in the directory."""
    texts = [arguments.text / f"{split}.txt" for split in SPLITS]
    stats = [path.exists() and path.stat() for path in texts]
    settings = {
        "text": [stat and [stat.st_size, stat.st_mtime_ns] for stat in stats],
        "vocabulary": arguments.sentencepiece or str(arguments.gpt2_bpe.resolve()),
    }
    keep(arguments.out, settings, of="symbols of another text or of another vocabulary")


def make_vocabulary(wanted: str, text: Path, model: Path, workers: int) -> None:
    """Train a sentencepiece vocabulary of that size, or copy that file.

    Raises:
        UsageError: neither a size nor a file, or the training failed.
    """
    if wanted.isdecimal():
        options = {"shuffle_input_sentence": True, "input_sentence_size": SAMPLE}
        options["num_threads"] = workers
        pieces.train([text], model, int(wanted), "--sentencepiece", **options)
    elif Path(wanted).is_file():
        with replacing(model) as aside:
            shutil.copyfile(wanted, aside)
    else:
        raise UsageError(f"--sentencepiece is {wanted!r}, which is neither a size nor a file.")


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("text", type=Path, metavar="TEXT", help="output of clean.py")
    parser.add_argument("--out", type=Path, required=True, metavar="DIRECTORY")
    vocabulary = parser.add_mutually_exclusive_group(required=True)
    vocabulary.add_argument("--sentencepiece", metavar="SIZE|FILE", help="train or use a model")
    vocabulary.add_argument("--gpt2-bpe", type=Path, metavar="FOLDER", help="of GPT-2's two files")
    parser.add_argument("--binarise", action="store_true", help="write the input of fairseq-train")
    parser.add_argument("--workers", type=int, default=cores(), help="number of processes")
    arguments = parser.parse_args(argv)
    if not (arguments.text / "train.txt").is_file():
        raise UsageError(f"TEXT is {str(arguments.text)!r}, but holds no train.txt.")
    if arguments.workers < 1:
        raise UsageError(f"--workers must be at least 1, but is {arguments.workers}.")
    return arguments


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    arguments = parse(argv)
    workers = arguments.workers
    keep_settings(arguments)
    load = load_gpt2
    path = arguments.gpt2_bpe
    if not path:
        load = load_sentencepiece
        path = arguments.out / MODEL
        if not path.exists():
            text = arguments.text / "train.txt"
            make_vocabulary(arguments.sentencepiece, text, path, workers)
        note_unsupported(path)
    words = arguments.out / "dict.txt"
    write_dictionary(load(path), words)
    if (record := arguments.text / PREPROCESSING).is_file():
        shutil.copyfile(record, arguments.out / PREPROCESSING)
    form = BINARY if arguments.binarise else SYMBOLS
    with pool(workers, _start_worker, load, path, words) as results:
        for split in SPLITS:
            if (source := arguments.text / f"{split}.txt").exists():
                encode_file(source, arguments.out / split, form, results)


if __name__ == "__main__":
    script.run(main)
