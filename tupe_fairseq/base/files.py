"""Write files atomically; lock files and folders."""

import errno
import glob
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import UsageError

try:
    import fcntl
except ImportError:
    # Windows, where nothing is locked.
    fcntl = None  # type: ignore[assignment]

#: Errors that name no file and come from writing alone: the disk is full.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: Seconds after which an unfinished file belongs to a process that was killed.
ABANDONED = 24 * 3600


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Write a file atomically: the block writes to another path, which is renamed at the end.

    If the block raises, the process is killed or the power fails, ``path`` stays as it was; after
    the block, the new file is on the disk. For a power failure this needs a file system that obeys
    fsync, and does not hold on Windows. Threads, processes and hosts may write the same file at
    once: the last one wins. What a killed process has left is removed when the file is written
    again, from a day later on.

    Yields:
        The path to write to, in the folder of ``path``.

    Raises:
        UsageError: the file cannot be written: no such folder, no permission, or a full disk.
    """
    path = Path(path)
    # Not made by tempfile, which would let nobody else read it.
    aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    try:
        yield aside
        move(aside, path)
        _remove_abandoned(path)
    except OSError as error:
        # Other errors come from files that the block reads.
        if str(error.filename) == str(aside) or error.errno in FULL:
            raise UsageError(f"cannot write {path}: {error.strerror}.") from error
        raise
    finally:
        with suppress(OSError):
            aside.unlink()


def move(aside: Path, path: Path) -> None:
    """Rename a complete file or folder; a power failure leaves the old or the new one at ``path``.

    Raises:
        OSError: ``path`` is a folder that is not empty, or the disk fails.
    """
    for part in (*(aside.rglob("*") if aside.is_dir() else ()), aside):
        _sync(part)
    os.replace(aside, path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk (fsync)."""
    # Windows cannot open folders.
    if os.name == "posix":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _remove_abandoned(path: Path) -> None:
    """Remove files that killed processes left when they wrote this one."""
    # Another process may remove them too.
    with suppress(OSError):
        for left in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
            if left.is_file() and time.time() - left.stat().st_mtime > ABANDONED:
                left.unlink()


def lock(descriptor: int, wait: bool = False) -> bool:
    """Lock an open file or folder until its descriptor is closed, or its process ends.

    Processes that inherit the descriptor hold the lock too.

    Args:
        descriptor: of the file or folder.
        wait: for another process that holds the lock.

    Returns:
        False if another process holds the lock. True also on systems without locks.
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        # Some network file systems have no locks.
        pass
    return True
