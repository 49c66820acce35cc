"""Restricted unpickling of numpy scalars and arrays.

A checkpoint holds validation scores and meters as numpy scalars and arrays. numpy's own classes
cannot be listed as safe globals. With numpy 2.2, these pickles read memory outside of the file's
bytes or end with a segmentation fault:

- an object array over a buffer, whose bytes become addresses of Python objects;
- an array with a negative offset in its buffer;
- a type whose state gives it fields of objects, or fields beyond its end.

The classes below replace numpy's. They accept numbers only, and exactly the bytes these need.
"""

import pickle
import re
from typing import Any

import numpy as np


class PlainDtype:
    """In place of `numpy.dtype`: booleans, integers and floats of up to 8 bytes."""

    def __init__(self, name: str, *flags: bool):
        if not isinstance(name, str) or not re.fullmatch("b1|[iu][1248]|f[248]", name):
            raise pickle.UnpicklingError(f"{name!r} is not a type of numbers")
        self.dtype = np.dtype(name)

    def __setstate__(self, state: tuple) -> None:
        """Take over the byte order, and nothing else of the state that numpy records."""
        if state[1] not in ("<", ">", "|", "="):
            raise pickle.UnpicklingError(f"{state[1]!r} is not a byte order")
        self.dtype = self.dtype.newbyteorder(state[1])


class PlainArray(np.ndarray):
    """In place of `numpy.ndarray`: an empty array, filled by its state, and saved as numpy's."""

    def __new__(cls) -> "PlainArray":
        return super().__new__(cls, 0)

    def __setstate__(self, state: tuple) -> None:
        """State of version 1: version, shape, dtype, whether in Fortran order, bytes."""
        _, shape, kind, fortran_order, raw = state
        _check(kind, raw)
        super().__setstate__((1, shape, kind.dtype, fortran_order, raw))

    def __array_wrap__(self, array: np.ndarray, *unused: Any) -> Any:
        """Operations return numpy's own arrays and scalars."""
        return array.view(np.ndarray)[()]

    def __reduce__(self) -> Any:
        return self.view(np.ndarray).__reduce__()


def empty_array(*unused: Any) -> PlainArray:
    """In place of numpy's `_reconstruct`, which makes an array of any class and shape."""
    return PlainArray()


def scalar(kind: PlainDtype, raw: bytes) -> np.generic:
    """In place of numpy's `scalar`."""
    _check(kind, raw)
    (number,) = np.frombuffer(raw, kind.dtype)
    return number


def _check(kind: Any, raw: Any) -> None:
    if not isinstance(kind, PlainDtype) or not isinstance(raw, bytes):
        raise pickle.UnpicklingError("an array of anything but numbers")


#: With their names in pickles. numpy 2 has renamed a module.
NUMPY_GLOBALS = [
    # Empty byte strings are pickled as a call of it.
    bytes,
    (PlainDtype, "numpy.dtype"),
    (PlainArray, "numpy.ndarray"),
    *(
        (function, f"numpy.{core}.multiarray.{name}")
        for core in ("core", "_core")
        for function, name in ((empty_array, "_reconstruct"), (scalar, "scalar"))
    ),
]
