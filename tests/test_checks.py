"""Checks of binarised data: each entry of an index is compared with the .bin file."""

import numpy as np
import pytest

from tupe_fairseq import UsageError
from tupe_fairseq.checks import HEADER, MAGIC, check_data


def write_index(path, sizes, item=2, code=8):
    """An index of fairseq-preprocess, and a .bin file that is all hole."""
    offsets = item * (np.cumsum(sizes, dtype=np.int64) - sizes)
    with path.open("wb") as file:
        file.write(HEADER.pack(MAGIC, 1, code, len(sizes)))
        sizes.astype(np.int32).tofile(file)
        offsets.tofile(file)
    with path.with_suffix(".bin").open("wb") as file:
        file.truncate(item * int(sizes.sum()))


@pytest.mark.parametrize("changed", [0, 5, 9])
@pytest.mark.parametrize("part", ["sizes", "offsets"])
def test_each_entry_of_an_index_is_checked(tmp_path, part, changed):
    path = tmp_path / "train.idx"
    write_index(path, np.arange(1, 11))
    check_data(str(tmp_path))
    raw = bytearray(path.read_bytes())
    raw[HEADER.size + (4 * changed if part == "sizes" else 40 + 8 * changed)] ^= 1
    path.write_bytes(raw)
    # The last size changes the wanted bytes of train.bin and nothing else.
    last = (part, changed) == ("sizes", 9)
    with pytest.raises(UsageError, match=r"train\.bin has" if last else r"train\.idx is cut off"):
        check_data(str(tmp_path))


def test_data_without_sentences(tmp_path):
    write_index(tmp_path / "train.idx", np.arange(0))
    check_data(str(tmp_path))
