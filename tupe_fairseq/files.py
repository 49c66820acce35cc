"""Write files atomically; lock files and folders."""

import errno
import glob
import os
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
#: Seconds after which an unfinished file belongs to a process that was killed. Its number does not
#: tell: processes of other hosts may write in the same folder.
ABANDONED = 24 * 3600


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Write a file atomically: the block writes to another path, which is renamed at the end.

    If the block raises or the process is killed, ``path`` stays as it was. What a killed process
    has left is removed when the file is written again, from a day later on.

    Yields:
        The path to write to, in the folder of ``path``.

    Raises:
        UsageError: the file cannot be written: no such folder, no permission, or a full disk.
    """
    path = Path(path)
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield aside
        os.replace(aside, path)
        _remove_abandoned(path)
    except OSError as error:
        # Other errors come from files that the block reads.
        if str(error.filename) == str(aside) or error.errno in FULL:
            raise UsageError(f"cannot write {path}: {error.strerror}.") from error
        raise
    finally:
        with suppress(OSError):
            aside.unlink()


def _remove_abandoned(path: Path) -> None:
    """Remove files that killed processes left when they wrote this one."""
    # Another process may remove them too.
    with suppress(OSError):
        for left in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
            if left.is_file() and time.time() - left.stat().st_mtime > ABANDONED:
                left.unlink()


def lock(descriptor: int) -> bool:
    """Lock an open file or folder until its descriptor is closed, or its process ends.

    Processes that inherit the descriptor hold the lock too.

    Returns:
        False if another process holds the lock. True also on systems without locks.
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # Some network file systems have no locks.
        pass
    return True
