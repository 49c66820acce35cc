"""Checks of binarised data: what they say, and how much memory they need."""

import shutil
import sys
import tracemalloc

import numpy as np
import pytest

from tests import toy_data
from tests.integration.commands import pretrain
from tupe_fairseq import UsageError
from tupe_fairseq.checks.data import check_data, check_lengths_of_pairs
from tupe_fairseq.checks.index import HEADER, MAGIC

#: Sentences that are read at once, and so many that there are more.
BLOCK, MANY = 1 << 18, (1 << 18) + 3


def write_index(path, sizes, item=2, code=8):
    """An index of fairseq-preprocess, and a .bin file that is all hole."""
    offsets = item * (np.cumsum(sizes, dtype=np.int64) - sizes)
    with path.open("wb") as file:
        file.write(HEADER.pack(MAGIC, 1, code, len(sizes)))
        sizes.astype(np.int32).tofile(file)
        offsets.tofile(file)
    with path.with_suffix(".bin").open("wb") as file:
        file.truncate(item * int(sizes.sum()))


def test_a_mask_in_the_text_is_named(tmp_path, monkeypatch):
    """fairseq says "Dataset contains mask_idx", in the traceback of a worker."""
    symbols = toy_data.dictionary(["a", "b", "<mask>", "c"])
    lines = ["a b c", "c", "b b a", "a <mask> c", "<mask>"]
    for split in ("train", "valid"):
        toy_data.write_split(tmp_path / "data", split, lines, symbols)
    monkeypatch.setattr(sys, "argv", ["fairseq-train"])
    with pytest.raises(SystemExit) as ended:
        pretrain(tmp_path / "data", tmp_path / "model")
    message = str(ended.value)
    assert message.startswith(f"error: {tmp_path}/data/train.bin: sentence 4 has the token <mask>")
    assert "remove or escape it in the text and run fairseq-preprocess again" in message
    assert "\n" not in message


def test_a_mask_in_a_later_block_of_the_index(tmp_path):
    symbols = toy_data.dictionary(["a", "<mask>"])
    words = np.full(MANY, symbols.index("a"), np.uint16)
    words[-2] = symbols.index("<mask>")
    write_index(tmp_path / "train.idx", np.ones(MANY, np.int64))
    words.tofile(tmp_path / "train.bin")
    with pytest.raises(UsageError, match=rf"train\.bin: sentence {MANY - 1} has the token <mask>"):
        check_data(str(tmp_path), symbols)
    check_data(str(tmp_path), None)


@pytest.mark.parametrize("changed", [0, 5, BLOCK - 1, BLOCK, MANY - 1])
@pytest.mark.parametrize("part", ["sizes", "offsets"])
def test_each_entry_of_an_index_is_checked(tmp_path, part, changed):
    path = tmp_path / "train.idx"
    write_index(path, np.arange(MANY) % 9 + 1)
    check_data(str(tmp_path))
    raw = bytearray(path.read_bytes())
    raw[HEADER.size + (4 * changed if part == "sizes" else 4 * MANY + 8 * changed)] ^= 1
    path.write_bytes(raw)
    # The last size changes the wanted bytes of train.bin and nothing else.
    last = (part, changed) == ("sizes", MANY - 1)
    with pytest.raises(UsageError, match=r"train\.bin has" if last else r"train\.idx is cut off"):
        check_data(str(tmp_path))


def test_memory_does_not_grow_with_the_corpus(tmp_path):
    """Four million sentences, 48 MB of index."""
    sizes = np.random.default_rng(0).integers(1, 60, 4_000_000)
    sizes[3_000_000] = 99
    write_index(tmp_path / "train.idx", sizes)
    write_index(tmp_path / "valid.en-de.en.idx", sizes)
    tracemalloc.start()
    try:
        check_data(str(tmp_path), toy_data.dictionary(["a"]))
        with pytest.raises(UsageError, match="sentence 3000001 has 99 tokens"):
            check_lengths_of_pairs(tmp_path, "valid", ("en", "de"), (98, 98))
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


def test_lengths_of_a_damaged_index(toy_translation_data, tmp_path):
    data = shutil.copytree(toy_translation_data, tmp_path / "data")
    index = data / "test.en-de.de.idx"
    index.write_bytes(index.read_bytes()[:-1])
    with pytest.raises(UsageError, match=r"test\.en-de\.de\.idx is cut off or damaged"):
        check_lengths_of_pairs(data, "test", ("en", "de"), (32, 32))
