"""Disks that are full, and folders in which nothing may be written."""

import ctypes
import hashlib
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def full_disk(after: int) -> Iterator[None]:
    """No file can become longer; Python ignores the signal, so that writing raises an OSError."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (after, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Nothing can be made, renamed or removed in a folder, by root neither."""
    mode = folder.stat().st_mode
    folder.chmod(0o555)
    try:
        with _without_roots_rights():
            yield
    finally:
        folder.chmod(mode)


#: Of Linux's capabilities, the one to write where permissions forbid it.
DAC_OVERRIDE = 1 << 1


@contextmanager
def _without_roots_rights() -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    # Version 3, this thread; effective, permitted and inheritable, of 32 capabilities twice.
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    rights = (ctypes.c_uint32 * 6)()
    assert libc.capget(header, rights) == 0
    effective = rights[0]
    rights[0] = effective & ~DAC_OVERRIDE
    assert libc.capset(header, rights) == 0
    try:
        yield
    finally:
        rights[0] = effective
        assert libc.capset(header, rights) == 0


def digests(folder: Path) -> dict[str, str]:
    """Digests of all files but logs, by path."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".log"
    }
