"""The C kernels, compiled on first use where there is a C compiler.

`kernels()` returns None without a compiler, after a failed compilation, or with
TUPE_FAIRSEQ_NATIVE=0 in the environment; torch operations are used then. The compiled library is
kept in $XDG_CACHE_HOME/tupe_fairseq (default ~/.cache/tupe_fairseq). Its name is a hash of the
source, the compiler and the processor.
"""

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from ..errors import UsageError
from ..files import replacing
from .random_bits import ENTRIES_PER_WORD, MULTIPLIERS, SHIFTS, STEP

logger = logging.getLogger(__name__)

SOURCES = [
    Path(__file__).with_name(name)
    for name in ("kernels.c", "linear.c", "products.c", "diagonals.c")
]
FLAGS = ("-std=c99", "-O3", "-fno-math-errno", "-fno-trapping-math", "-fPIC")
#: Tried in this order. OpenMP is not linked: the threads are those of torch's OpenMP library.
VARIANTS = (("-march=native", "-fopenmp"), ("-fopenmp",), ())
COMPILERS = ("cc", "gcc", "clang")
SECONDS = 60


class ScoreTerms(ctypes.Structure):
    """`softmax.ScoreTerms` as the kernels read it; the C declaration is made from these fields.

    bias, padding: pointers to fp32, or null. bias_matrix, bias_row, padding_matrix: strides in
    elements. matrices_per_bias: consecutive matrices that share a bias. paddings: number P.
    """

    _fields_ = (
        ("bias", ctypes.c_void_p),
        ("padding", ctypes.c_void_p),
        ("bias_matrix", ctypes.c_long),
        ("bias_row", ctypes.c_long),
        ("padding_matrix", ctypes.c_long),
        ("matrices_per_bias", ctypes.c_long),
        ("paddings", ctypes.c_long),
        ("key", ctypes.c_uint64),
        ("first", ctypes.c_uint64),
        ("threshold", ctypes.c_int),
        ("drops", ctypes.c_int),
        ("scale", ctypes.c_float),
    )


#: C declarations of the types in `ScoreTerms`.
C_TYPES = {
    ctypes.c_void_p: "const float *",
    ctypes.c_long: "long ",
    ctypes.c_uint64: "uint64_t ",
    ctypes.c_int: "int ",
    ctypes.c_float: "float ",
}
SIZES = (ctypes.c_long,) * 3
ARGUMENTS = {
    "softmax_dropout": (ctypes.c_void_p, ctypes.POINTER(ScoreTerms), *SIZES),
    "softmax_dropout_backward": (*(ctypes.c_void_p,) * 3, ctypes.POINTER(ScoreTerms), *SIZES),
    **{
        name: (*(ctypes.c_void_p,) * 2, *(ctypes.c_long,) * 7, ctypes.c_int)
        for name in ("add_by_distance", "sum_by_distance")
    },
    "dropout": (
        *(ctypes.c_void_p,) * 3,
        *(ctypes.c_uint64, ctypes.c_int, ctypes.c_float, ctypes.c_long),
    ),
    "add_layer_norm": (*(ctypes.c_void_p,) * 5, ctypes.c_float, *(ctypes.c_long,) * 2),
    "small_linear": (*(ctypes.c_void_p,) * 4, *SIZES),
    "multiply": (*(ctypes.c_void_p,) * 3, *(ctypes.c_long,) * 12, ctypes.c_int),
    "serves_products": (),
    "attend": (
        *(ctypes.c_void_p,) * 4,
        ctypes.POINTER(ScoreTerms),
        *(ctypes.POINTER(ctypes.c_long),) * 2,
        *(ctypes.c_long,) * 7,
    ),
}
#: Of functions that return something.
RESULTS = {name: ctypes.c_int for name in ("small_linear", "serves_products", "attend")}


@functools.cache
def kernels() -> ctypes.CDLL | None:
    """The compiled kernels, or None where there are none."""
    if os.environ.get("TUPE_FAIRSEQ_NATIVE") == "0":
        return None
    compiler = find_compiler()
    if compiler is None:
        logger.info("no C compiler (cc, gcc, clang): attention and dropout on CPU are slower")
        return None
    for variant in VARIANTS:
        try:
            return _declared(ctypes.CDLL(str(_built(compiler, (*FLAGS, *variant)))))
        except (OSError, subprocess.SubprocessError, UsageError) as error:
            logger.info(f"{shlex.join(compiler)} {shlex.join(variant)}: {error}")
    return None


def find_compiler() -> list[str] | None:
    """$CC, or the first compiler on the PATH, as a command; None where there is none."""
    for candidate in (os.environ.get("CC"), *COMPILERS):
        command = shlex.split(candidate or "")
        if command and shutil.which(command[0]):
            return command
    return None


def _built(compiler: list[str], flags: tuple[str, ...]) -> Path:
    """The path of the library, compiled if it is not in the cache."""
    source = declarations() + "".join(file.read_text(encoding="utf-8") for file in SOURCES)
    facts = (source, *compiler, *flags, _processor())
    name = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]
    library = _directory() / f"kernels-{name}.so"
    if not library.exists():
        # Written aside and renamed: other processes may compile the same library now.
        with replacing(library) as partial:
            _compile(compiler, flags, source, Path(partial))
    return library


def declarations() -> str:
    """The struct and the constants that C shares with Python, as C source."""
    fields = "".join(f"{C_TYPES[kind]}{name}; " for name, kind in ScoreTerms._fields_)
    constants = {
        "ENTRIES_PER_WORD": ENTRIES_PER_WORD,
        "STEP": f"{STEP:#x}u",
        **{f"SHIFT_{i}": shift for i, shift in enumerate(SHIFTS, 1)},
        **{f"MULTIPLIER_{i}": f"{value:#x}u" for i, value in enumerate(MULTIPLIERS, 1)},
    }
    lines = [f"#define {name} {value}" for name, value in constants.items()]
    struct = f"typedef struct {{ {fields}}} ScoreTerms;\n"
    return "\n".join(["#include <stdint.h>", *lines, struct])


def _compile(compiler: list[str], flags: tuple[str, ...], source: str, library: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        complete, compiled = Path(directory) / "kernels.c", Path(directory) / "kernels.o"
        complete.write_text(source, encoding="utf-8")
        for step in (
            [*compiler, *flags, "-c", str(complete), "-o", str(compiled)],
            [*compiler, "-shared", str(compiled), "-o", str(library)],
        ):
            subprocess.run(step, check=True, capture_output=True, timeout=SECONDS)


def _directory() -> Path:
    """The cache directory, or a temporary one where the cache cannot be written."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    directory = Path(cache) / "tupe_fairseq"
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        directory = Path("/nonexistent")
    if os.access(directory, os.W_OK):
        return directory
    return Path(tempfile.mkdtemp(prefix="tupe_fairseq-"))


def _processor() -> str:
    """What -march=native depends on: several machines may share a home directory."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine() + platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    for name, arguments in ARGUMENTS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, RESULTS.get(name)
    return library
