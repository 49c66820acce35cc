"""Checks of binarised data: each entry of an index is compared with the .bin file."""

import numpy as np
import pytest

from tupe_fairseq import UsageError
from tupe_fairseq.fairseq.checks import HEADER, LONGEST_LINE, MAGIC, check_data, read_dictionary


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


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_dictionary_with_a_longer_line_than_any_token(tmp_path, place):
    """It is not read to its end, which may never come; a line of the largest size is."""
    path = tmp_path / "dict.txt"
    lines = ["a 3", "b 2", "c 1"]
    lines[place] = "x" * (LONGEST_LINE - 4) + " 1"
    path.write_text("\n".join(lines) + "\n")
    assert lines[place][:-2] in read_dictionary(path).symbols
    told = rf"{path} cannot be loaded .*longer than {LONGEST_LINE}"
    for more in ("x", "xxxxx"):
        lines[place] = more + lines[place]
        path.write_text("\n".join(lines) + "\n")
        with pytest.raises(UsageError, match=told):
            read_dictionary(path)


@pytest.mark.parametrize(
    "contents", [b"a\n", b"a b\n", b"a 1\na 1\n", b"\xff 1\n", b"a 1\n\n", None]
)
def test_dictionaries_that_fairseq_cannot_read(tmp_path, contents):
    """One line names the file: no count, twice the same, no UTF-8, an empty line, no file."""
    path = tmp_path / "dict.txt"
    if contents is not None:
        path.write_bytes(contents)
    with pytest.raises(UsageError, match=f"{path} cannot be loaded as a dictionary: ") as error:
        read_dictionary(path)
    assert "\n" not in str(error.value)
