"""numpy scalars and arrays in checkpoints: numbers are read exactly, all else is refused."""

import pickle

import numpy as np
import pytest
import torch

from tests import processes
from tupe_fairseq import CheckpointError
from tupe_fairseq.fairseq.checkpoints.reading import read_checkpoint

NUMBERS = {
    "float64": np.float64(2.5),
    "float32": np.float32(-1e-9),
    "int64": np.int64(-(2**40)),
    "bool": np.bool_(True),
    "big endian": np.dtype(">f8").type(3.25),
    "vector": np.arange(5.0),
    "Fortran order": np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3)),
    "of big endians": np.arange(4, dtype=">i4"),
    "empty": np.zeros((0, 3), np.float32),
    "no dimension": np.array(7.0),
}


def saved(value, path, old_numpy=False):
    torch.save({"model": {}, "value": value}, path)
    if old_numpy:
        # The old format keeps the pickle as it is, and a name ends with its line.
        torch.save({"model": {}, "value": value}, path, _use_new_zipfile_serialization=False)
        path.write_bytes(path.read_bytes().replace(b"cnumpy._core.", b"cnumpy.core."))
    return path


@pytest.mark.parametrize("old_numpy", [False, True], ids=["numpy 2", "numpy 1"])
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_read_exactly(tmp_path, name, old_numpy):
    """Also after they were read and saved again."""
    value = NUMBERS[name]
    path = tmp_path / "model.pt"
    found = read_checkpoint(saved(value, path, old_numpy))["value"]
    again = read_checkpoint(saved(found, path))["value"]
    for each in (found, again):
        assert each.dtype.newbyteorder("=") == value.dtype.newbyteorder("=")
        np.testing.assert_array_equal(each, value)


def test_computing_and_pickling_give_numpys_own_classes(tmp_path):
    """Stock fairseq accepts no other class."""
    found = read_checkpoint(saved(np.arange(3.0), tmp_path / "model.pt"))["value"]
    assert type(pickle.loads(pickle.dumps(found))) is np.ndarray
    assert type(found.sum()) is np.float64
    assert type(found + found) is np.ndarray


class Made:
    """Pickled as a call, and optionally a state."""

    def __init__(self, *parts):
        self.parts = parts

    def __reduce__(self):
        return self.parts


def forgeries():
    """Pickles by which numpy's own classes read memory outside of the file, or crash."""
    address = b"AAAAAAAA"
    multiarray = np._core.multiarray
    objects = Made(np.dtype, ("O8", False, True))
    structure = (3, "|", None, ("a",), {"a": (objects, 0)}, 8, 1, 0)
    disguised = Made(np.dtype, ("f8", False, True), structure)
    void = Made(np.dtype, ("V8", False, True), structure)
    beyond = {"a": (Made(np.dtype, ("f8", False, True)), 2**30)}
    outside = Made(np.dtype, ("V8", False, True), (3, "|", None, ("a",), beyond, 8, 1, 0))
    empty = (multiarray._reconstruct, (np.ndarray, (0,), b"b"))
    return {
        "by name": Made(np.ndarray, ((1,), "O", address)),
        "by a type": Made(np.ndarray, ((1,), np.dtype([("a", "O")]), address)),
        "as a number": Made(multiarray.scalar, (objects, address)),
        "as a disguised number": Made(multiarray.scalar, (disguised, address)),
        "as a state": Made(*empty, (1, (1,), objects, False, address)),
        "as a disguised state": Made(*empty, (1, (1,), disguised, False, address)),
        "as a void": Made(multiarray.scalar, (void, address)),
        "as a state of voids": Made(*empty, (1, (1,), void, False, address)),
        "a field beyond the end": Made(multiarray.scalar, (outside, address)),
        "a negative offset": Made(np.ndarray, ((1,), "i8", address, -4096)),
        "text": np.array(["abc"]),
        "objects": np.array([{}], dtype=object),
        "too few bytes": Made(*empty, (1, (1000,), np.dtype("f8"), False, address)),
        "too many bytes": Made(multiarray.scalar, (np.dtype("f8"), 2 * address)),
        "negative shape": Made(*empty, (1, (-1,), np.dtype("f8"), False, address)),
    }


LOOK = """
import sys
from tupe_fairseq import UsageError
from tupe_fairseq.fairseq.checkpoints.reading import read_checkpoint
for path in sys.argv[1:]:
    try:
        print("read", repr(read_checkpoint(path)["value"]))
    except UsageError:
        print("refused")
"""


def test_forged_arrays_are_refused(tmp_path):
    """In a process of its own, which would crash at an array that was read."""
    program = tmp_path / "program.py"
    paths = []
    program.write_text(LOOK)
    for name, value in forgeries().items():
        paths.append(tmp_path / f"{name}.pt".replace(" ", "-"))
        torch.save({"model": {}, "value": value}, paths[-1])
    ended = processes.run(program, *paths)
    assert ended.stdout.split("\n")[:-1] == ["refused"] * len(paths), ended.stdout
    with pytest.raises(CheckpointError):
        read_checkpoint(paths[0])
