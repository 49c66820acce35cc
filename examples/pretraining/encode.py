"""Clean lines -> lines of subword symbols, ready for fairseq-preprocess.

    python examples/pretraining/encode.py TEXT --out DIRECTORY --sentencepiece 32000
    python examples/pretraining/encode.py TEXT --out DIRECTORY --sentencepiece FILE.model
    python examples/pretraining/encode.py TEXT --out DIRECTORY --gpt2-bpe FOLDER

TEXT is the folder that clean.py wrote. The first form trains a sentencepiece vocabulary (BPE) of
that size on train.txt, the second takes one that there is; either way DIRECTORY gets it as
sentencepiece.bpe.model, which later goes beside the checkpoint. The third takes GPT-2's: FOLDER
holds encoder.json and vocab.bpe (or gpt2_bpe_encoder.json and gpt2_bpe_vocab.bpe). Nothing is
downloaded. DIRECTORY gets `train` and
`valid`, symbols separated by spaces, and `dict.txt`, all symbols of the vocabulary: one made from
the text would be another for every text, and full of the rare characters that have no symbol.

Blocks of lines are encoded side by side. Each file appears when it is complete; a second call
makes only what is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from pathlib import Path

import sentencepiece
from fairseq.data.encoders.gpt2_bpe_utils import get_encoder
from tqdm import tqdm

from tupe_fairseq import UsageError
from tupe_fairseq.files import replacing

SPLITS = ("train", "valid")
#: Lines that a process takes at once.
BLOCK = 2000
#: Lines that the vocabulary is trained on at most, drawn at random; more need much memory.
SAMPLE = 5_000_000
MODEL = "sentencepiece.bpe.model"

Encoder = Callable[[list[str]], list[str]]
#: The encoder of this process.
_encode: Encoder


def train_sentencepiece(text: Path, model: Path, size: int, threads: int) -> None:
    """Train a BPE vocabulary of so many symbols and write MODEL.

    Raises:
        UsageError: the text is too short for so large a vocabulary, say.
    """
    with replacing(model) as aside:
        try:
            with aside.open("wb") as out:
                sentencepiece.SentencePieceTrainer.train(
                    input=str(text),
                    model_writer=out,
                    model_type="bpe",
                    vocab_size=size,
                    input_sentence_size=SAMPLE,
                    shuffle_input_sentence=True,
                    # In bytes: a line of 2,000 characters may have four times as many.
                    max_sentence_length=1 << 14,
                    num_threads=threads,
                    minloglevel=1,
                )
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            raise UsageError(f"--sentencepiece {size} on {text} failed: {reason}") from error


def load_sentencepiece(model: Path) -> tuple[Encoder, list[str]]:
    """Lines to pieces, as fairseq's `--bpe sentencepiece` splits them; and all pieces.

    Raises:
        UsageError: the file is something else.
    """
    try:
        processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    except (RuntimeError, OSError) as error:
        raise UsageError(f"{model} is no sentencepiece model.") from error
    special = (processor.is_unknown, processor.is_control)
    ids = (i for i in range(len(processor)) if not any(test(i) for test in special))
    pieces = [processor.id_to_piece(i) for i in ids]
    return lambda lines: [" ".join(p) for p in processor.encode(lines, out_type=str)], pieces


def load_gpt2(folder: Path) -> tuple[Encoder, list[str]]:
    """Lines to ids, as fairseq's `--bpe gpt2` splits them; and all ids.

    Raises:
        UsageError: the folder lacks a file.
    """
    paths = []
    for name in ("encoder.json", "vocab.bpe"):
        found = [folder / name, folder / f"gpt2_bpe_{name}"]
        paths += [path for path in found if path.is_file()][:1]
    if len(paths) != 2:
        raise UsageError(f"--gpt2-bpe is {str(folder)!r}, but lacks encoder.json or vocab.bpe.")
    bpe = get_encoder(*map(str, paths))
    ids = [str(number) for number in sorted(bpe.encoder.values())]
    return lambda lines: [" ".join(map(str, bpe.encode(line))) for line in lines], ids


def write_dictionary(symbols: list[str], path: Path) -> None:
    """A dictionary of fairseq: a symbol and a count a line; the counts mean nothing here."""
    with replacing(path) as aside:
        aside.write_text("".join(f"{symbol} 1\n" for symbol in symbols), encoding="utf-8")


def encode_file(source: Path, target: Path, pool: ProcessPoolExecutor, ahead: int) -> None:
    """Encode a file block by block, in order; progress is in bytes of it.

    Args:
        source: text, a line each.
        target: appears when it is complete.
        pool: of processes that know the vocabulary.
        ahead: blocks in work at once; more would fill the memory.
    """
    size = source.stat().st_size
    waiting: deque = deque()
    with (
        replacing(target) as aside,
        aside.open("w", encoding="utf-8") as out,
        tqdm(desc=f"encode {source.stem}", total=size, unit="B", unit_scale=True) as progress,
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
    """Write settings.json, or compare with it: what is there is kept only where it fits.

    Raises:
        UsageError: the directory was made from other text or for another vocabulary.
    """
    texts = [arguments.text / f"{split}.txt" for split in SPLITS]
    stats = [path.exists() and path.stat() for path in texts]
    settings = {
        "text": [stat and [stat.st_size, stat.st_mtime_ns] for stat in stats],
        "vocabulary": arguments.sentencepiece or str(arguments.gpt2_bpe.resolve()),
    }
    path = arguments.out / "settings.json"
    if not path.exists():
        with replacing(path) as aside:
            aside.write_text(json.dumps(settings))
    elif json.loads(path.read_text()) != settings:
        raise UsageError(
            f"--out {str(arguments.out)!r} holds symbols of other text or of another vocabulary; "
            "remove it, or give another directory."
        )


def make_vocabulary(wanted: str, text: Path, model: Path, workers: int) -> None:
    """Train a sentencepiece vocabulary of that size, or copy the one in that file.

    Raises:
        UsageError: neither a size nor a file.
    """
    if wanted.isdecimal():
        train_sentencepiece(text, model, int(wanted), workers)
    elif Path(wanted).is_file():
        with replacing(model) as aside:
            shutil.copyfile(wanted, aside)
    else:
        raise UsageError(f"--sentencepiece is {wanted!r}: neither a size nor a file.")


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Arguments."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("text", type=Path, metavar="TEXT", help="what clean.py wrote")
    parser.add_argument("--out", type=Path, required=True, metavar="DIRECTORY")
    vocabulary = parser.add_mutually_exclusive_group(required=True)
    vocabulary.add_argument("--sentencepiece", metavar="SIZE|FILE", help="train one, or take it")
    vocabulary.add_argument("--gpt2-bpe", type=Path, metavar="FOLDER", help="of its two files")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes")
    arguments = parser.parse_args(argv)
    if not (arguments.text / "train.txt").is_file():
        raise UsageError(f"TEXT is {str(arguments.text)!r}, but holds no train.txt.")
    if arguments.workers < 1:
        raise UsageError(f"--workers must be at least 1, but is {arguments.workers}.")
    return arguments


def main(argv: list[str] | None = None) -> None:
    """See the module's text."""
    arguments = parse(argv)
    workers = arguments.workers
    arguments.out.mkdir(parents=True, exist_ok=True)
    keep_settings(arguments)
    if arguments.gpt2_bpe:
        load, path = load_gpt2, arguments.gpt2_bpe
    else:
        load, path = load_sentencepiece, arguments.out / MODEL
        if not path.exists():
            text = arguments.text / "train.txt"
            make_vocabulary(arguments.sentencepiece, text, path, workers)
    _, symbols = load(path)
    write_dictionary(symbols, arguments.out / "dict.txt")
    with ProcessPoolExecutor(workers, initializer=_start_worker, initargs=(load, path)) as pool:
        for split in SPLITS:
            source, target = arguments.text / f"{split}.txt", arguments.out / split
            if source.exists() and not target.exists():
                encode_file(source, target, pool, ahead=4 * workers)


if __name__ == "__main__":
    try:
        main()
    except BrokenProcessPool:
        sys.exit("error: a process was killed, perhaps for want of memory: give fewer --workers.")
    except (UsageError, OSError) as error:
        sys.exit(f"error: {error}")
