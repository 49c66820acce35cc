"""Check binarised data and dictionaries before they are used: errors name the file.

fairseq itself ends with a traceback that names no file; for data that are cut off, only in the
middle of an epoch.
"""

import struct
from pathlib import Path

import numpy as np
from fairseq.data import Dictionary

from ..base.errors import DataError

#: An index as fairseq-preprocess writes it (--dataset-impl mmap) begins with: magic, version, code
#: of the type of the token ids, number of sentences. Two arrays follow: for each sentence its
#: number of tokens (int32), and for each its first byte in the .bin file (int64).
HEADER = struct.Struct("<9sQBQ")
MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
#: Begin an index of fairseq's other formats (--dataset-impl lazy, cached and huffman).
OTHER_MAGIC = (b"TNTIDX\x00\x00", b"HUFFIDX\x00\x00")
#: Types of token ids by code. Float codes are omitted: token ids are integers.
ID_TYPES = {
    1: np.uint8,
    2: np.int8,
    3: np.int16,
    4: np.int32,
    5: np.int64,
    8: np.uint16,
    9: np.uint32,
    10: np.uint64,
}
#: Token ids of a file that are compared with the dictionary.
FIRST_IDS = 1_000_000
#: Bytes. A longer line of a dictionary holds no token, and is not read to its end.
LONGEST_LINE = 1 << 16


def check_data(paths: str, dictionary: Dictionary | None = None) -> None:
    """Compare binarised data with their indices, and their first token ids with the dictionary.

    Args:
        paths: value of `data`, folders separated by colons. fairseq names those that are missing.
        dictionary: of the sentences.

    Raises:
        DataError: a file is missing, cut off or of another dictionary.
    """
    for folder in map(Path, str(paths).split(":")):
        for part in (folder, *(folder / name for name in ("input0", "input1", "label"))):
            for index in sorted(part.glob("*.idx")):
                symbols = len(dictionary) if dictionary and part.name != "label" else None
                _check_pair(index, index.with_suffix(".bin"), symbols)


def _check_pair(index: Path, data: Path, symbols: int | None) -> None:
    try:
        raw = index.read_bytes()
        size = data.stat().st_size
    except OSError as error:
        raise DataError(f"cannot read {error.filename}: {error.strerror}.") from error
    if raw.startswith(OTHER_MAGIC):
        return
    id_type, end = _id_type_and_end(raw, index)
    if size != end:
        raise DataError(
            f"{data} has {size} bytes, but must have {end} according to {index.name}: it is cut "
            "off or belongs to another index; run fairseq-preprocess again."
        )
    ids = np.fromfile(data, id_type, 0 if symbols is None else FIRST_IDS)
    if symbols is not None and (ids.max(initial=0) >= symbols or ids.min(initial=0) < 0):
        raise DataError(
            f"{data} was binarised with another dictionary than the dict.txt beside it, which has "
            f"{symbols} symbols, or is damaged; run fairseq-preprocess again."
        )


def _id_type_and_end(raw: bytes, index: Path) -> tuple[np.dtype, int]:
    """The type of the token ids in a .bin file, and the number of bytes, from the index."""
    error = DataError(f"{index} is cut off or damaged; run fairseq-preprocess again.")
    if len(raw) < HEADER.size:
        raise error
    magic, version, code, count = HEADER.unpack_from(raw)
    complete = len(raw) == HEADER.size + 12 * count
    if magic != MAGIC or version != VERSION or code not in ID_TYPES or not complete:
        raise error
    id_type = np.dtype(ID_TYPES[code])
    sizes = np.frombuffer(raw, np.int32, count, HEADER.size).astype(np.int64)
    starts = np.frombuffer(raw, np.int64, count, HEADER.size + 4 * count)
    # Sentences follow one another without a gap.
    ends = starts + id_type.itemsize * sizes
    if sizes.min(initial=0) < 0 or starts[:1].any() or (starts[1:] != ends[:-1]).any():
        raise error
    return id_type, int(ends[-1]) if count else 0


def read_dictionary(path: Path) -> Dictionary:
    """Read a dictionary as fairseq does, with errors of one line.

    fairseq's commands read it before they build a model, so there fairseq's traceback remains.

    Raises:
        DataError: fairseq cannot read it.
    """
    try:
        with path.open("rb") as file:
            while line := file.readline(LONGEST_LINE):
                if len(line) == LONGEST_LINE:
                    raise ValueError(f"a line is longer than {LONGEST_LINE} bytes")
        return Dictionary.load(str(path))
    # fairseq raises Exception itself where the encoding is wrong.
    except Exception as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise DataError(f"{path} cannot be loaded as a dictionary: {reason}.") from error
