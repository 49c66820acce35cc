"""Clean lines -> lines of subword symbols for fairseq-preprocess.

    python -m examples.pretraining.encode TEXT --out DIRECTORY --sentencepiece 32000
    python -m examples.pretraining.encode TEXT --out DIRECTORY --sentencepiece FILE.model
    python -m examples.pretraining.encode TEXT --out DIRECTORY --gpt2-bpe FOLDER

TEXT is the output of clean.py. The first form trains a sentencepiece vocabulary (BPE) of that size
on train.txt, the second uses an existing one; DIRECTORY gets it as sentencepiece.bpe.model, which
later belongs beside the checkpoint. The third uses GPT-2's: FOLDER holds encoder.json and
vocab.bpe (or gpt2_bpe_encoder.json and gpt2_bpe_vocab.bpe). Nothing is downloaded.

DIRECTORY gets `train` and `valid`, symbols separated by spaces, and `dict.txt` with all symbols of
the vocabulary. A dictionary made from the text would differ from text to text, and contain rare
characters that are not symbols. Each file is written atomically; a second call writes the missing
ones.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from pathlib import Path

from fairseq.data.encoders.gpt2_bpe_utils import get_encoder
from tqdm import tqdm

from examples.shared import pieces, script
from examples.shared.jobs import keep
from examples.shared.pieces import MODEL
from tupe_fairseq import UsageError
from tupe_fairseq.files import replacing

SPLITS = ("train", "valid")
#: Lines that a process encodes at a time.
BLOCK = 2000
#: For sentencepiece: a random sample limits the memory; a line of 2,000 characters may have four
#: times as many bytes.
LIMITS = {"input_sentence_size": 5_000_000, "max_sentence_length": 1 << 14}
OUT_OF_MEMORY = "a process was killed, possibly for lack of memory: reduce --workers."

Encoder = Callable[[list[str]], list[str]]
#: The encoder of this process.
_encode: Encoder


def load_sentencepiece(model: Path) -> tuple[Encoder, list[str]]:
    """A function from lines to pieces, as fairseq's `--bpe sentencepiece`; and all pieces.

    Raises:
        UsageError: the file is not a sentencepiece model.
    """
    processor = pieces.load(model)
    special = (processor.is_unknown, processor.is_control)
    ids = (i for i in range(len(processor)) if not any(test(i) for test in special))
    symbols = [processor.id_to_piece(i) for i in ids]
    return lambda lines: [" ".join(p) for p in processor.encode(lines, out_type=str)], symbols


def load_gpt2(folder: Path) -> tuple[Encoder, list[str]]:
    """A function from lines to ids, as fairseq's `--bpe gpt2`; and all ids.

    Raises:
        UsageError: the folder lacks a file.
    """
    names = ("encoder.json", "vocab.bpe")
    found = [[folder / name, folder / f"gpt2_bpe_{name}"] for name in names]
    paths = [next(filter(Path.is_file, both), None) for both in found]
    if None in paths:
        raise UsageError(f"--gpt2-bpe is {str(folder)!r}, but lacks encoder.json or vocab.bpe.")
    bpe = get_encoder(*map(str, paths))
    ids = [str(number) for number in sorted(bpe.encoder.values())]
    return lambda lines: [" ".join(map(str, bpe.encode(line))) for line in lines], ids


def write_dictionary(symbols: list[str], path: Path) -> None:
    """Write fairseq's dictionary: a symbol and a count per line; the counts are not used."""
    with replacing(path) as aside:
        aside.write_text("".join(f"{symbol} 1\n" for symbol in symbols), encoding="utf-8")


def encode_file(source: Path, target: Path, pool: ProcessPoolExecutor, ahead: int) -> None:
    """Encode a file in blocks of lines, which keep their order.

    Args:
        source: text.
        target: written atomically.
        pool: of processes that have loaded the vocabulary.
        ahead: number of blocks in progress, which limits the memory.
    """
    waiting: deque = deque()
    bar = {"desc": f"encode {source.stem}", "unit": "B", "unit_scale": True}
    with (
        replacing(target) as aside,
        aside.open("w", encoding="utf-8") as out,
        tqdm(total=source.stat().st_size, **bar) as progress,
    ):

        def write_next() -> None:
            read, lines = waiting.popleft().result()
            out.writelines(f"{line}\n" for line in lines)
            progress.update(read)

        for block in _blocks(source):
            waiting.append(pool.submit(_encode_block, block))
            if len(waiting) > ahead:
                write_next()
        while waiting:
            write_next()


def _blocks(source: Path) -> Iterator[list[str]]:
    with source.open(encoding="utf-8", newline="\n") as lines:
        while block := list(islice(lines, BLOCK)):
            yield block


def _encode_block(block: list[str]) -> tuple[int, list[str]]:
    size = sum(len(line.encode()) for line in block)
    return size, _encode([line.rstrip("\n") for line in block])


def _start_worker(load: Callable[[Path], tuple[Encoder, list[str]]], path: Path) -> None:
    global _encode
    _encode, _ = load(path)


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
        options = {"shuffle_input_sentence": True, "num_threads": workers, **LIMITS}
        pieces.train([text], model, int(wanted), "--sentencepiece", **options)
    elif Path(wanted).is_file():
        with replacing(model) as aside:
            shutil.copyfile(wanted, aside)
    else:
        raise UsageError(f"--sentencepiece is {wanted!r}: neither a size nor a file.")


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("text", type=Path, metavar="TEXT", help="output of clean.py")
    parser.add_argument("--out", type=Path, required=True, metavar="DIRECTORY")
    vocabulary = parser.add_mutually_exclusive_group(required=True)
    vocabulary.add_argument("--sentencepiece", metavar="SIZE|FILE", help="train or use a model")
    vocabulary.add_argument("--gpt2-bpe", type=Path, metavar="FOLDER", help="of GPT-2's two files")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes")
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
    load, path = load_gpt2, arguments.gpt2_bpe
    if not path:
        load, path = load_sentencepiece, arguments.out / MODEL
        if not path.exists():
            text = arguments.text / "train.txt"
            make_vocabulary(arguments.sentencepiece, text, path, workers)
    _, symbols = load(path)
    write_dictionary(symbols, arguments.out / "dict.txt")
    try:
        with ProcessPoolExecutor(workers, None, _start_worker, (load, path)) as pool:
            for split in SPLITS:
                source, target = arguments.text / f"{split}.txt", arguments.out / split
                if source.exists() and not target.exists():
                    encode_file(source, target, pool, ahead=4 * workers)
    except BrokenProcessPool as error:
        raise UsageError(OUT_OF_MEMORY) from error


if __name__ == "__main__":
    script.run(main)
