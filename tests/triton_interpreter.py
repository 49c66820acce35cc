"""Triton's kernels in tests: on a GPU, or else in Triton's interpreter on the CPU."""

import importlib.util
import os

import numpy as np
import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MISSING = importlib.util.find_spec("triton") is None

if DEVICE == "cpu":
    # Before the first import of triton; tests/conftest.py imports this file.
    os.environ.setdefault("TRITON_INTERPRET", "1")


def repair_bf16(patch: pytest.MonkeyPatch) -> None:
    """Multiply and round bf16 as GPUs do.

    Triton's interpreter (3.8) stores bf16 as integers. It multiplies these in matrix products, and
    truncates fp32 instead of rounding to the nearest.
    """
    from triton import language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    cast = InterpreterBuilder.cast_impl

    def numbers(x):
        is_bf16 = x.dtype.scalar == tl.bfloat16
        return (x.data.astype(np.uint32) << 16).view(np.float32) if is_bf16 else x.data

    def create_dot(self, a, b, d, *_):
        product = np.matmul(numbers(a), numbers(b), dtype=d.data.dtype)
        return TensorHandle(product + d.data, d.dtype.scalar)

    def cast_impl(self, x, to):
        if (x.dtype.scalar, to.scalar) != (tl.float32, tl.bfloat16):
            return cast(self, x, to)
        rounded = torch.from_numpy(np.ascontiguousarray(x.data)).bfloat16().view(torch.int16)
        return TensorHandle(rounded.numpy().view(np.uint16), tl.bfloat16)

    patch.setattr(InterpreterBuilder, "create_dot", create_dot)
    patch.setattr(InterpreterBuilder, "cast_impl", cast_impl)
