"""One training at a time in a folder."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import UsageError


@contextmanager
def alone_in(folder: str, patience: int = 15) -> Iterator[None]:
    """Keep other trainings that are started like this out of a folder, which is made if need be.

    Args:
        folder: --save-dir.
        patience: seconds to wait; processes that read data outlive a killed training by five.

    Raises:
        UsageError: it cannot be made, or another training is in it.
    """
    try:
        os.makedirs(folder, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise UsageError(f"--save-dir is {folder!r}: {error.strerror}.") from error
    while not _locked(descriptor):
        if patience <= 0:
            os.close(descriptor)
            raise UsageError(
                f"--save-dir is {folder!r}, but another training writes there: wait for its end, "
                "or name another folder."
            )
        patience -= 1
        time.sleep(1)
    try:
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    """Lock a file or folder until its descriptor is closed, as at the end of the process."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # Some network file systems have no locks.
        pass
    return True
