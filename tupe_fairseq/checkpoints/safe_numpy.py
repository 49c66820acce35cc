"""Numbers and arrays of numpy from a stranger's pickle, of which numpy itself is too trusting.

A checkpoint holds validation scores and meters as numpy scalars and arrays. numpy's own classes
would, given the right arguments, take bytes of the file for addresses of Python objects; torch
lists none of them. These take their places: plain numbers only, as many bytes as they need.
"""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np


class PlainDtype:
    """In the place of `numpy.dtype`: truth values, integers and floats of up to 8 bytes."""

    def __init__(self, name: str, *flags: bool):
        if not isinstance(name, str) or not re.fullmatch("b1|[iu][1248]|f[248]", name):
            raise pickle.UnpicklingError(f"{name!r} are no plain numbers")
        self.dtype = np.dtype(name)

    def __setstate__(self, state: tuple) -> None:
        """Of what numpy records, the order of the bytes alone."""
        if state[1] not in ("<", ">", "|", "="):
            raise pickle.UnpicklingError(f"{state[1]!r} is no order of bytes")
        self.dtype = self.dtype.newbyteorder(state[1])


class PlainArray(np.ndarray):
    """In the place of `numpy.ndarray`: an empty array that a pickle fills; saved as numpy's."""

    def __new__(cls) -> PlainArray:
        return super().__new__(cls, 0)

    def __setstate__(self, state: tuple) -> None:
        """Version, shape, dtype, order, bytes."""
        _, shape, kind, columns_first, raw = state
        _check(kind, raw)
        super().__setstate__((1, shape, kind.dtype, columns_first, raw))

    def __array_wrap__(self, array: np.ndarray, *unused: Any) -> Any:
        """What is computed of it is numpy's own again."""
        return array.view(np.ndarray)[()]

    def __reduce__(self) -> Any:
        return self.view(np.ndarray).__reduce__()


def empty_array(*unused: Any) -> PlainArray:
    """In the place of numpy's `_reconstruct`, which makes an array of any class and shape."""
    return PlainArray()


def scalar(kind: PlainDtype, raw: bytes) -> np.generic:
    """In the place of numpy's `scalar`."""
    _check(kind, raw)
    (number,) = np.frombuffer(raw, kind.dtype)
    return number


def _check(kind: Any, raw: Any) -> None:
    if not isinstance(kind, PlainDtype) or not isinstance(raw, bytes):
        raise pickle.UnpicklingError("an array of anything but plain numbers")


#: By the names that pickles have; numpy 2 has renamed a module.
NUMPY_GLOBALS = [
    # Which no bytes at all are pickled as.
    bytes,
    (PlainDtype, "numpy.dtype"),
    (PlainArray, "numpy.ndarray"),
    *(
        (function, f"numpy.{core}.multiarray.{name}")
        for core in ("core", "_core")
        for function, name in ((empty_array, "_reconstruct"), (scalar, "scalar"))
    ),
]
