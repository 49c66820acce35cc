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
#: Bytes of an item by the number of its type.
ITEM_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 8, 7: 8, 8: 2, 9: 4, 10: 8}


def check_data(paths: str) -> None:
    """Compare the sizes of binarised data with what their indices say.

    Args:
        paths: value of `data`, folders separated by colons; those that are not there are left to
            fairseq, which names them.

    Raises:
        UsageError: a file is cut off, or no such file.
    """
    for folder in map(Path, str(paths).split(":")):
        for part in (folder, *(folder / name for name in ("input0", "input1", "label"))):
            for index in sorted(part.glob("*.idx")):
                _check_pair(index, index.with_suffix(".bin"))


def _check_pair(index: Path, items: Path) -> None:
    try:
        raw = index.read_bytes()
        found = items.stat().st_size
    except OSError as error:
        raise UsageError(f"cannot read {error.filename}: {error.strerror}.") from error
    if not raw.startswith(MAGIC):
        # Written with another --dataset-impl, if it is one at all.
        return
    try:
        _, code, count = HEADER.unpack_from(raw, len(MAGIC))
        rest = len(MAGIC) + HEADER.size
        if len(raw) != rest + 12 * count:
            raise ValueError
        sizes = np.frombuffer(raw, np.int32, count, rest)
        item = ITEM_SIZES[code]
    except (struct.error, ValueError, KeyError) as error:
        raise UsageError(
            f"{index} is cut off or damaged; run fairseq-preprocess again."
        ) from error
    wanted = int(sizes.sum(dtype=np.int64)) * item
    if found != wanted:
        raise UsageError(
            f"{items} has {found} bytes, but {index.name} tells of {wanted}: it is cut off or of "
            "other data; run fairseq-preprocess again."
        )


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
        Dictionary.load(str(path))
    # fairseq raises Exception itself where the encoding is wrong.
    except Exception as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise UsageError(f"{path} is no dictionary, or is damaged: {reason}.") from error
