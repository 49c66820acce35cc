"""Binarised data and dictionaries that are damaged: one line that names the file.

fairseq ends in a traceback that names none: in the middle of an epoch for data whose end is
missing, at once for a dictionary. Under its commands it still does so for a dictionary, which its
tasks read before they build our model.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from fairseq.data import Dictionary

from ..errors import UsageError

#: Of an index as fairseq-preprocess writes it (--dataset-impl mmap): magic, version, type of the
#: items, number of sentences; then a size (int32) and a place (int64) a sentence.
MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<QBQ")
VERSION = 1
MASK = "<mask>"
#: Bytes of a line of a dictionary; a longer one is no word, and is not read to its end.
LONGEST_LINE = 1 << 16
#: Of the other formats of fairseq (--dataset-impl lazy and cached), which are not checked.
OTHER_MAGIC = b"TNTIDX\x00\x00"
#: What items are, by the number of their type; the other numbers are of no words.
ITEMS = {
    **{1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64},
    **{8: np.uint16, 9: np.uint32, 10: np.uint64},
}


def check_data(paths: str, dictionary: Dictionary | None = None) -> None:
    """Compare binarised data with their indices, and their first words with the dictionary.

    Args:
        paths: value of `data`, folders separated by colons; those that are not there are left to
            fairseq, which names them.
        dictionary: of the sentences, with `<mask>`.

    Raises:
        UsageError: a file is cut off, no such file, or of another dictionary.
    """
    for folder in map(Path, str(paths).split(":")):
        for part in (folder, *(folder / name for name in ("input0", "input1", "label"))):
            for index in sorted(part.glob("*.idx")):
                items = index.with_suffix(".bin")
                kind = _check_pair(index, items)
                if kind is not None and dictionary is not None and part.name != "label":
                    _check_words(items, kind, dictionary)


def _check_words(items: Path, kind: type[np.integer], dictionary: Dictionary) -> None:
    """Look whether the first million words can be of the dictionary."""
    first = np.fromfile(items, kind, count=1_000_000)
    masked = MASK in dictionary.symbols and (first == dictionary.index(MASK)).any()
    if masked or first.max(initial=0) >= len(dictionary) or first.min(initial=0) < 0:
        raise UsageError(
            f"{items} was binarised with another dictionary than the dict.txt beside it, of "
            f"{len(dictionary)} symbols, or is damaged; run fairseq-preprocess again."
        )


def _check_pair(index: Path, items: Path) -> type[np.integer] | None:
    """The type of the items; None where that is not known."""
    try:
        raw = index.read_bytes()
        found = items.stat().st_size
    except OSError as error:
        raise UsageError(f"cannot read {error.filename}: {error.strerror}.") from error
    if raw.startswith(OTHER_MAGIC):
        return None
    try:
        version, code, count = HEADER.unpack_from(raw, len(MAGIC))
        rest = len(MAGIC) + HEADER.size
        if not raw.startswith(MAGIC) or version != VERSION or len(raw) != rest + 12 * count:
            raise ValueError
        sizes = np.frombuffer(raw, np.int32, count, rest).astype(np.int64)
        places = np.frombuffer(raw, np.int64, count, rest + 4 * count)
        kind = ITEMS[code]
        item = np.dtype(kind).itemsize
        # Sentences stand one after the other.
        if sizes.min(initial=0) < 0 or (places != item * (sizes.cumsum() - sizes)).any():
            raise ValueError
    except (struct.error, ValueError, KeyError) as error:
        raise UsageError(
            f"{index} is cut off or damaged; run fairseq-preprocess again."
        ) from error
    wanted = int(sizes.sum()) * item
    if found != wanted:
        raise UsageError(
            f"{items} has {found} bytes, but {index.name} tells of {wanted}: it is cut off or of "
            "other data; run fairseq-preprocess again."
        )
    return kind


def check_lengths_of_pairs(
    folder: Path, split: str, languages: tuple[str, str], longest: tuple[int, int]
) -> None:
    """Refuse a translation set with sentences longer than the model's positions.

    fairseq would refuse them too, in a traceback.

    Args:
        folder: binarised data.
        split: e.g. "valid"; one that is not there is left to fairseq.
        languages: source and target.
        longest: most tokens of source and target.

    Raises:
        UsageError: there is such a sentence.
    """
    source, target = languages
    sides = zip(languages, longest, ("source", "target"), strict=True)
    for language, most, side in sides:
        for pair in (f"{source}-{target}", f"{target}-{source}"):
            index = folder / f"{split}.{pair}.{language}.idx"
            if not index.is_file() or (sizes := _sizes(index.read_bytes())) is None:
                continue
            if len(sizes) and sizes.max() > most:
                raise UsageError(
                    f"{index.name}: sentence {sizes.argmax() + 1} has {sizes.max()} tokens, but "
                    f"--max-{side}-positions is {most}; --skip-invalid-size-inputs-valid-test "
                    "leaves such sentences out."
                )


def _sizes(raw: bytes) -> np.ndarray | None:
    """Tokens of each sentence, or None where the index is of another kind or damaged."""
    start = len(MAGIC) + HEADER.size
    if not raw.startswith(MAGIC) or len(raw) < start:
        return None
    _, _, count = HEADER.unpack_from(raw, len(MAGIC))
    return np.frombuffer(raw, np.int32, count, start) if len(raw) == start + 12 * count else None


def check_dictionary(path: Path) -> None:
    """Read a dictionary as fairseq will.

    Raises:
        UsageError: fairseq cannot.
    """
    try:
        with path.open("rb") as file:
            while line := file.readline(LONGEST_LINE):
                if len(line) == LONGEST_LINE:
                    raise ValueError(f"a line is longer than {LONGEST_LINE} bytes")
        Dictionary.load(str(path))
    # fairseq raises Exception itself where the encoding is wrong.
    except Exception as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise UsageError(f"{path} is no dictionary, or is damaged: {reason}.") from error
