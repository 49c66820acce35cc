"""Indices of binarised data, read in blocks, so that memory does not grow with the corpus."""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import DataError

#: An index as fairseq-preprocess writes it (--dataset-impl mmap) begins with: magic, version, code
#: of the type of the token ids, number of sentences. Two arrays follow: for each sentence its
#: number of tokens (int32), and for each its first byte in the .bin file (int64).
HEADER = struct.Struct("<9sQBQ")
MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
#: Begins an index of fairseq's other formats (--dataset-impl lazy and cached).
OTHER_MAGIC = b"TNTIDX\x00\x00"
#: Types of token ids by code. Float codes are omitted: token ids are integers.
ID_TYPES = {
    **{1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64},
    **{8: np.uint16, 9: np.uint32, 10: np.uint64},
}
#: Of a block.
SENTENCES_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class Index:
    """An index whose header is right.

    Attributes:
        path: of the file.
        sentences: their number.
        id_type: of the token ids in the .bin file.
    """

    path: Path
    sentences: int
    id_type: np.dtype

    def blocks(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Consecutive blocks of sentences.

        Yields:
            Number of sentences before the block; tokens of each sentence; first byte of each.
        """
        for before in range(0, self.sentences, SENTENCES_AT_ONCE):
            count = min(SENTENCES_AT_ONCE, self.sentences - before)
            sizes = self._mapped(np.int32, HEADER.size + 4 * before, count)
            offsets = HEADER.size + 4 * self.sentences + 8 * before
            yield before, sizes.astype(np.int64), self._mapped(np.int64, offsets, count)

    def _mapped(self, kind: type, offset: int, count: int) -> np.ndarray:
        # A map of the whole file would keep in memory all pages that were read.
        return np.memmap(self.path, kind, "r", offset, (count,))


def read_index(path: Path) -> Index | None:
    """Read and check the header of an index.

    Returns:
        None for fairseq's other formats.

    Raises:
        DataError: the file cannot be read, is cut off or is damaged.
    """
    try:
        with path.open("rb") as file:
            header, length = file.read(HEADER.size), os.fstat(file.fileno()).st_size
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}.") from error
    if header.startswith(OTHER_MAGIC):
        return None
    if len(header) == HEADER.size:
        magic, version, code, sentences = HEADER.unpack(header)
        whole = length == HEADER.size + 12 * sentences
        if magic == MAGIC and version == VERSION and code in ID_TYPES and whole:
            return Index(path, sentences, np.dtype(ID_TYPES[code]))
    raise damaged(path)


def damaged(index: Path) -> DataError:
    """The error to raise for an index that contradicts itself."""
    return DataError(f"{index} is cut off or damaged; run fairseq-preprocess again.")
