"""Raw text or WikiExtractor output -> clean lines, with documents held out for validation.

    python -m examples.pretraining.clean INPUT... --out DIRECTORY

INPUT are text files or folders of them (`.gz`, `.bz2` and `.xz` are decompressed while reading),
or the output of WikiExtractor. DIRECTORY gets `preprocessing.json`, which says whether the text is
lowercased, and `train.txt` and `valid.txt`, UTF-8, a paragraph per line:

- single spaces, no control characters, no empty lines, lower case without `--cased`;
- lines of more than `--longest` characters are split between words, to fit into a sequence;
- lines that are not UTF-8 are dropped and counted;
- WikiExtractor's `<doc>` tags, titles and remaining markup are removed.

A document is an article of WikiExtractor; otherwise documents are separated by empty lines (at
most 1,000 lines each). The checksum of its first line decides whether it is held out, so this does
not depend on the order or number of files, or on the number of processes.

Each input file is cleaned by one process, into DIRECTORY/parts-*; these are joined at the end. A
second call cleans the files that are missing. One large file takes one process, and is begun again
after an interruption; it is best split first: `split -C 1G FILE FOLDER/`.
"""

import argparse
import bz2
import gzip
import hashlib
import html
import io
import json
import lzma
import re
import shutil
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from examples.shared import script
from examples.shared.workers import pool
from tupe_fairseq import UsageError
from tupe_fairseq.base.files import replacing
from tupe_fairseq.base.machine import cores
from tupe_fairseq.base.texts import UTF16
from tupe_fairseq.fairseq.hub.files import record_preprocessing

OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
SPLITS = ("train", "valid")
#: Characters read at a time, which limits the memory for binary files and for text without lines.
CHUNK = 1 << 20
#: Lines of a document at most, so that a file without empty lines is split as well.
DOCUMENT = 1000

DOC_START = re.compile(r"<doc id=.* title=\"(.*)\">$")
MARKUP = re.compile(r"</?[a-zA-Z][^<>]*>")
CONTROL = {code: None for code in (*range(0x00, 0x09), *range(0x0E, 0x1C), 0x7F, 0xFEFF)}


class Settings(NamedTuple):
    """What decides how a file is cleaned."""

    cased: bool
    longest: int
    valid_share: float


def read_lines(path: Path) -> Iterator[str]:
    """Lines of a file, decompressed; those beyond CHUNK in parts that end between words.

    Bytes that are not UTF-8 become U+FFFD. Line ends of all systems are recognised.

    Raises:
        UsageError: the file cannot be read completely, or is UTF-16.
    """
    opener = OPENERS.get(path.suffix.lower(), open)
    try:
        with opener(path, "rb") as raw:
            if raw.peek(2)[:2] in UTF16:
                raise UsageError(f"{path} is UTF-16: convert it by iconv -f utf-16 -t utf-8.")
            text = io.TextIOWrapper(raw, encoding="utf-8", errors="replace")
            rest = ""
            while piece := text.readline(CHUNK):
                line = rest + piece
                rest = ""
                if len(piece) == CHUNK and not piece.endswith("\n"):
                    line, space, rest = line.rpartition(" ")
                    if not space:
                        line = rest
                        rest = ""
                yield line
            yield rest
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise UsageError(f"cannot read {path}: {error}.") from error


def documents(lines: Iterator[str], lost: list[int]) -> Iterator[list[str]]:
    """Lines of each document with single spaces; `lost[0]` counts those that are not UTF-8."""
    document: list[str] = []
    title = None
    in_wiki = False
    for line in lines:
        line = " ".join(line.translate(CONTROL).split())
        if start := DOC_START.match(line):
            yield document
            document = []
            title = html.unescape(start[1])
            in_wiki = True
            continue
        if line == "</doc>":
            yield document
            document = []
            in_wiki = False
            continue
        if in_wiki:
            line = " ".join(MARKUP.sub(" ", html.unescape(line)).split())
            if title is not None and line:
                is_title = line == title
                title = None
                if is_title:
                    continue
        if "\ufffd" in line:
            lost[0] += 1
        elif line:
            document.append(line)
        if len(document) >= DOCUMENT or not (line or in_wiki):
            yield document
            document = []
    yield document


def cut(line: str, longest: int) -> Iterator[str]:
    """Parts of at most `longest` characters, split between words if possible."""
    while len(line) > longest:
        end = line.rfind(" ", 0, longest + 1)
        end = end if end > 0 else longest
        yield line[:end]
        line = line[end:].lstrip()
    if line:
        yield line


def is_held_out(document: list[str], share: float) -> bool:
    """Whether the checksum of the first line falls into the share."""
    checksum = hashlib.sha256(document[0].encode()).digest()
    return int.from_bytes(checksum[:8], "big") < share * 2**64


def clean_file(path: Path, part: Path, settings: Settings) -> dict[str, int]:
    """Clean a file into PART.train and PART.valid; PART.json, with counts, is written last."""
    lost = [0]
    counts = dict.fromkeys(SPLITS, 0)
    with ExitStack() as stack:
        out = {}
        for split in SPLITS:
            aside = stack.enter_context(replacing(f"{part}.{split}"))
            out[split] = stack.enter_context(aside.open("w", encoding="utf-8"))
        for document in filter(None, documents(read_lines(path), lost)):
            split = "valid" if is_held_out(document, settings.valid_share) else "train"
            for line in document:
                for short in cut(line if settings.cased else line.lower(), settings.longest):
                    out[split].write(f"{short}\n")
                    counts[split] += 1
    counts["lost"] = lost[0]
    with replacing(f"{part}.json") as aside:
        aside.write_text(json.dumps(counts))
    return counts


def input_files(inputs: list[Path]) -> list[Path]:
    """All files in sorted order, also in subfolders, except hidden ones.

    Raises:
        UsageError: an input does not exist, is an archive, or there is no file.
    """
    files = []
    for path in inputs:
        if not path.exists():
            raise UsageError(f"INPUT {str(path)!r} does not exist.")
        found = path.rglob("*") if path.is_dir() else [path]
        files += [f for f in found if f.is_file() and not f.name.startswith(".")]
    if not files:
        raise UsageError(f"INPUT {' '.join(map(str, inputs))} holds no files.")
    for path in files:
        if ".tar" in path.suffixes or path.suffix in {".tgz", ".zip", ".7z"}:
            raise UsageError(f"INPUT {str(path)!r} is an archive; unpack it and give the folder.")
    return sorted(files)


def clean(files: list[Path], out: Path, settings: Settings, workers: int) -> dict[str, int]:
    """Clean all files in parallel, then join the parts and remove them.

    Returns:
        Number of lines in each split, and of lines that are not UTF-8.
    """
    stats = [(str(f.resolve()), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
    key = hashlib.sha256(json.dumps([stats, settings]).encode()).hexdigest()[:12]
    for old in out.glob("parts-*"):
        if old.name != f"parts-{key}":
            shutil.rmtree(old)
    parts = out / f"parts-{key}"
    parts.mkdir(parents=True, exist_ok=True)
    jobs = [(path, parts / f"{number:06}", settings) for number, path in enumerate(files)]
    missing = [job for job in jobs if not job[1].with_suffix(".json").exists()]
    size = sum(path.stat().st_size for path, *_ in missing)
    bar = {"desc": "clean", "total": size, "unit": "B", "unit_scale": True}
    with pool(workers) as results, tqdm(**bar) as progress:
        for read in results(_clean_job, missing):
            progress.update(read)
    counts = [json.loads(part.with_suffix(".json").read_text()) for _, part, _ in jobs]
    total = {name: sum(count[name] for count in counts) for name in counts[0]}
    _check(total, settings)
    for split in SPLITS:
        join([part.with_suffix(f".{split}") for _, part, _ in jobs], out / f"{split}.txt")
    shutil.rmtree(parts)
    return total


def join(parts: list[Path], target: Path) -> None:
    """Concatenate text files."""
    with replacing(target) as aside, aside.open("wb") as out:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, out)


def _clean_job(job: tuple[Path, Path, Settings]) -> int:
    clean_file(*job)
    return job[0].stat().st_size


def _check(total: dict[str, int], settings: Settings) -> None:
    if not total["train"]:
        raise UsageError(
            f"INPUT holds no text: {total['lost']} lines are not UTF-8, all others are empty."
        )
    if settings.valid_share and not total["valid"]:
        raise UsageError(
            f"--valid-share {settings.valid_share} holds out no document, because there are few: "
            "increase it, or separate documents by empty lines."
        )


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("inputs", type=Path, nargs="+", metavar="INPUT", help="text files or folders of them")
    add("--out", type=Path, required=True, metavar="DIRECTORY")
    add("--cased", action="store_true", help="keep upper case")
    add("--longest", type=int, default=2000, help="largest number of characters in a line")
    add("--valid-share", type=float, default=0.01, help="share of documents held out")
    add("--workers", type=int, default=cores(), help="number of processes")
    args = parser.parse_args(argv)
    if args.longest < 1 or args.workers < 1:
        raise UsageError("--longest and --workers must be at least 1.")
    if not 0 <= args.valid_share < 1:
        raise UsageError(f"--valid-share must lie in [0, 1), but is {args.valid_share}.")
    settings = Settings(args.cased, args.longest, args.valid_share)
    total = clean(input_files(args.inputs), args.out, settings, args.workers)
    record_preprocessing(args.out, lowercase=not args.cased)
    print(f"{total['train']:,} lines for training, {total['valid']:,} held out", end="")
    print(f", {total['lost']:,} dropped (not UTF-8)" if total["lost"] else "")


if __name__ == "__main__":
    script.run(main)
