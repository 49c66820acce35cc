"""The C kernels, compiled on first use where there is a C compiler.

`kernels()` returns None without a compiler that knows OpenMP and this processor, or with
TUPE_FAIRSEQ_NATIVE=0 in the environment; torch operations are used then. The compiled library is
kept in $XDG_CACHE_HOME/tupe_fairseq (default ~/.cache/tupe_fairseq), which nobody else may read or
write. Its name is a hash of the source, the compiler and the processor.

The functions are called by ctypes and are not registered as operators of torch: a call on 16
tokens would take four times as long by the decorator `custom_op`, and 1.7 times as long if it were
registered without the decorator. Where torch traces (`torch.compiler.is_compiling`), torch
operations are used.
"""

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from ..base.errors import DataError, UsageError
from ..base.files import lock, replacing
from ..base.machine import fact_of_processor
from .random_bits import ENTRIES_PER_WORD, MULTIPLIERS, SHIFTS, STEP

logger = logging.getLogger(__name__)

SOURCES = ("kernels.c", "vectors.c", "linear.c", "quantized.c", "products.c", "diagonals.c")
#: OpenMP is not linked: the threads are those of torch's OpenMP library. Without OpenMP or
#: -march=native torch's own operations are faster.
FLAGS = (
    "-std=c99",
    "-O3",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-fPIC",
    "-march=native",
    "-fopenmp",
)
COMPILERS = ("cc", "gcc", "clang")
#: Subclasses of tensors may have no memory, or other memory than their shape says.
PLAIN = (Tensor, nn.Parameter)
SECONDS = 60

POINTER = ctypes.c_void_p
LONG = ctypes.c_long
INT = ctypes.c_int
WORD = ctypes.c_uint64
FLOAT = ctypes.c_float
#: C declarations of the types in `TermsInC`.
C_TYPES = {POINTER: "const float*", LONG: "long", WORD: "uint64_t", INT: "int", FLOAT: "float"}


class TermsInC(ctypes.Structure):
    """`softmax.ScoreTerms` as the kernels read it; the C declaration is made from these fields.

    bias, padding: pointers to fp32, or null. bias_matrix, bias_row, padding_matrix: strides in
    elements. matrices_per_bias: consecutive matrices that share a bias. paddings: number P.
    """

    _fields_ = (
        ("bias", POINTER),
        ("padding", POINTER),
        ("bias_matrix", LONG),
        ("bias_row", LONG),
        ("padding_matrix", LONG),
        ("matrices_per_bias", LONG),
        ("paddings", LONG),
        ("key", WORD),
        ("first", WORD),
        ("threshold", INT),
        ("drops", INT),
        ("scale", FLOAT),
    )


TERMS = ctypes.POINTER(TermsInC)
LONGS = ctypes.POINTER(LONG)
#: The arguments of each function in C. `attend` returns an int, the default of ctypes.
ARGUMENTS = {
    "softmax_dropout": (POINTER, TERMS, *(LONG,) * 3),
    "softmax_dropout_backward": (*(POINTER,) * 3, TERMS, *(LONG,) * 3),
    "add_by_distance": (*(POINTER,) * 2, *(LONG,) * 7, INT),
    "sum_by_distance": (*(POINTER,) * 2, *(LONG,) * 7, INT),
    "dropout": (*(POINTER,) * 2, WORD, INT, FLOAT, LONG),
    "small_linear": (*(POINTER,) * 4, *(LONG,) * 3),
    "quantize_rows": (*(POINTER,) * 3, *(LONG,) * 2),
    "quantized_product": (*(POINTER,) * 5, *(LONG,) * 3),
    "gelu_rows": (POINTER, *(LONG,) * 3),
    "scale_rows": (*(POINTER,) * 4, *(LONG,) * 2),
    "multiply": (*(POINTER,) * 3, *(LONG,) * 12, INT),
    "attend": (*(POINTER,) * 4, TERMS, LONGS, LONGS, *(LONG,) * 7),
}


def serving(*tensors: Tensor) -> ctypes.CDLL | None:
    """The kernels if they can read these tensors, or None: torch computes then."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return None
    for x in tensors:
        if x.dtype != torch.float32 or not x.is_cpu or type(x) not in PLAIN:
            return None
    return None if is_transformed() else kernels()


def is_transformed() -> bool:
    """Whether tensors may stand for more than their values: in torch.func or forward-mode AD."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def pointer(
    x: Tensor, *shape: int, strided: bool = False, dtype: torch.dtype = torch.float32
) -> int:
    """The address of a tensor for a kernel: every kernel gets its pointers from here.

    Args:
        x: on the CPU.
        shape: what the kernel reads or writes.
        strided: whether the kernel takes strides, so that x need not be contiguous.
        dtype: of x.

    Raises:
        DataError: x is another tensor.
    """
    if x.shape != shape or x.dtype != dtype or not x.is_cpu:
        raise DataError(
            f"a kernel needs {dtype} of shape {shape} on cpu, but gets {x.dtype} of shape "
            f"{tuple(x.shape)} on {x.device}."
        )
    if not strided and not x.is_contiguous():
        raise DataError(f"a kernel needs a contiguous tensor, but gets the strides {x.stride()}.")
    return x.data_ptr()


@functools.cache
def kernels() -> ctypes.CDLL | None:
    """The compiled kernels, or None where there are none."""
    if os.environ.get("TUPE_FAIRSEQ_NATIVE") == "0":
        return None
    try:
        return _load()
    # No home directory is a RuntimeError.
    except (OSError, RuntimeError, subprocess.SubprocessError, UsageError) as error:
        logger.info(f"no kernels in C, attention and dropout on CPU are slower: {error}")
        return None


def _load() -> ctypes.CDLL:
    compiler = find_compiler()
    if compiler is None:
        raise OSError("there is no C compiler (cc, gcc, clang)")
    files = [Path(__file__).with_name(name) for name in SOURCES]
    source = declarations() + "".join(file.read_text(encoding="utf-8") for file in files)
    # What -march=native depends on: several machines may share a home directory.
    processor = fact_of_processor("flags", "Features") or platform.machine() + platform.processor()
    facts = (source, *compiler, *FLAGS, processor)
    name = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]
    with _cache() as folder:
        library = folder / f"kernels-{name}.so"
        if not library.exists():
            with replacing(library) as partial:
                _compile(compiler, source, partial)
        kernels = ctypes.CDLL(str(library))
    for name, arguments in ARGUMENTS.items():
        # Some are for processors with AVX-512 or AVX2 alone.
        if hasattr(kernels, name):
            getattr(kernels, name).argtypes = arguments
    return kernels


@contextmanager
def _cache() -> Iterator[Path]:
    """The folder of libraries, locked against other threads and processes.

    Raises:
        OSError: it cannot be made, or another user may have written there.
        RuntimeError: the user has no home directory.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tupe_fairseq"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise OSError(f"{folder} must be yours alone (chmod 700)")
        lock(descriptor, wait=True)
        yield folder
    finally:
        os.close(descriptor)


def find_compiler() -> list[str] | None:
    """$CC, or the first compiler on the PATH, as a command; None where there is none."""
    for candidate in (os.environ.get("CC"), *COMPILERS):
        command = shlex.split(candidate or "")
        if command and shutil.which(command[0]):
            return command
    return None


def declarations() -> str:
    """The struct and the constants that C shares with Python, as C source."""
    fields = "".join(f"{C_TYPES[kind]} {name}; " for name, kind in TermsInC._fields_)
    constants = {
        "ENTRIES_PER_WORD": ENTRIES_PER_WORD,
        "STEP": f"{STEP:#x}u",
        **{f"SHIFT_{i}": shift for i, shift in enumerate(SHIFTS, 1)},
        **{f"MULTIPLIER_{i}": f"{value:#x}u" for i, value in enumerate(MULTIPLIERS, 1)},
    }
    lines = [f"#define {name} {value}" for name, value in constants.items()]
    struct = f"typedef struct {{ {fields}}} ScoreTerms;\n"
    return "\n".join(["#include <stdint.h>", *lines, struct])


def _compile(compiler: list[str], source: str, library: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        complete = Path(directory) / "kernels.c"
        compiled = Path(directory) / "kernels.o"
        complete.write_text(source, encoding="utf-8")
        for step in (
            [*compiler, *FLAGS, "-c", str(complete), "-o", str(compiled)],
            [*compiler, "-shared", str(compiled), "-o", str(library)],
        ):
            subprocess.run(step, check=True, capture_output=True, timeout=SECONDS)
