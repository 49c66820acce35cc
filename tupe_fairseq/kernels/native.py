"""The C kernels, compiled on first use where there is a C compiler; without one torch does it all.

`kernels()` is None where they cannot be had: no compiler, a compiler that fails, or
TUPE_FAIRSEQ_NATIVE=0 in the environment. The library is kept in $XDG_CACHE_HOME/tupe_fairseq
(~/.cache/tupe_fairseq), under a name made from its source, compiler and processor.
"""

from __future__ import annotations

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

logger = logging.getLogger(__name__)

SOURCE = Path(__file__).with_name("kernels.c")
FLAGS = ("-std=c99", "-O3", "-fno-math-errno", "-fno-trapping-math", "-fPIC")
#: Tried in this order. OpenMP is not linked: torch's own, already loaded, gives its threads.
VARIANTS = (("-march=native", "-fopenmp"), ("-fopenmp",), ())
COMPILERS = ("cc", "gcc", "clang")
SECONDS = 60


class Terms(ctypes.Structure):
    """`Terms` of kernels.c."""

    _fields_ = (
        ("bias", ctypes.c_void_p),
        ("padding", ctypes.c_void_p),
        ("bias_matrix", ctypes.c_long),
        ("bias_row", ctypes.c_long),
        ("padding_matrix", ctypes.c_long),
        ("bias_shared_by", ctypes.c_long),
        ("paddings", ctypes.c_long),
        ("key", ctypes.c_uint64),
        ("first", ctypes.c_uint64),
        ("threshold", ctypes.c_int),
        ("drops", ctypes.c_int),
        ("scale", ctypes.c_float),
    )


SIZES = (ctypes.c_long,) * 3
ARGUMENTS = {
    "weigh": (ctypes.c_void_p, ctypes.POINTER(Terms), *SIZES),
    "weigh_backward": (*(ctypes.c_void_p,) * 3, ctypes.POINTER(Terms), *SIZES),
    "dropout": (
        *(ctypes.c_void_p,) * 3,
        *(ctypes.c_uint64, ctypes.c_int, ctypes.c_float, ctypes.c_long),
    ),
    "add_layer_norm": (*(ctypes.c_void_p,) * 5, ctypes.c_float, *(ctypes.c_long,) * 2),
}


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
    """Compile, unless it has been done."""
    facts = (SOURCE.read_text(encoding="utf-8"), *compiler, *flags, _processor())
    name = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]
    library = _directory() / f"kernels-{name}.so"
    if not library.exists():
        # Aside and renamed, since other processes may be doing the same.
        with replacing(library) as partial:
            _compile([*compiler, *flags], Path(partial))
    return library


def _compile(command: list[str], library: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        compiled = Path(directory) / "kernels.o"
        for step in (
            [*command, "-c", str(SOURCE), "-o", str(compiled)],
            [command[0], "-shared", str(compiled), "-o", str(library)],
        ):
            subprocess.run(step, check=True, capture_output=True, timeout=SECONDS)


def _directory() -> Path:
    """Where the library is kept; one for this process where there is no place to keep it."""
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
    """What -march=native depends on, since a home directory may serve several machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine() + platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    for name, arguments in ARGUMENTS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, None
    return library
