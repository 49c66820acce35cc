"""fairseq's binarised format: PREFIX.bin holds the ids, PREFIX.idx where examples begin."""

import shutil
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import SEEK_END
from pathlib import Path

import numpy as np
from fairseq.data.indexed_dataset import (
    MMapIndexedDataset,
    MMapIndexedDatasetBuilder,
    make_builder,
)

from tupe_fairseq.base.files import replacing


@contextmanager
def binarised(prefix: Path, words: int) -> Iterator[MMapIndexedDatasetBuilder]:
    """Write data atomically; PREFIX.idx is written last.

    Args:
        prefix: of both files.
        words: in the dictionary, which decides the type of the ids.

    Yields:
        fairseq's builder, whose `add_item` takes the ids of an example with </s>.
    """
    with replacing(f"{prefix}.idx") as index, replacing(f"{prefix}.bin") as data:
        builder = make_builder(str(data), "mmap", vocab_size=words)
        yield builder
        builder.finalize(str(index))


def join(parts: list[Path], prefix: Path) -> None:
    """Concatenate data, as `MMapIndexedDatasetBuilder.merge_file_`.

    That collects the sizes of all examples in lists. Here the memory depends on the largest part.

    Args:
        parts: prefixes, at least one.
        prefix: of the files to write.
    """
    with replacing(f"{prefix}.idx") as index, replacing(f"{prefix}.bin") as data:
        with data.open("wb") as out:
            for part in parts:
                with open(f"{part}.bin", "rb") as source:
                    shutil.copyfileobj(source, out)
        dtype = MMapIndexedDataset.Index(f"{parts[0]}.idx").dtype
        with MMapIndexedDataset.Index.writer(str(index), dtype) as header:
            header.write([])
        with index.open("r+b") as out:
            # The header ends with the number of examples.
            out.seek(-struct.calcsize("<Q"), SEEK_END)
            out.write(struct.pack("<Q", sum(map(len, map(_sizes, parts)))))
            out.writelines(map(_sizes, parts))
            out.writelines(_pointers(parts, np.dtype(dtype).itemsize))


def _sizes(part: Path) -> np.ndarray:
    """Tokens of each example; a copy, because an index that is freed unmaps its file."""
    index = MMapIndexedDataset.Index(f"{part}.idx")
    return np.array(index.sizes)


def _pointers(parts: Iterable[Path], bytes_of_id: int) -> Iterator[np.ndarray]:
    """The first byte of each example in the joined data, a part at a time."""
    end = 0
    for part in parts:
        ends = end + np.cumsum(_sizes(part), dtype=np.int64) * bytes_of_id
        yield np.append(end, ends)[:-1]
        end = ends[-1] if len(ends) else end
