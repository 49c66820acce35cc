"""One call at a time in a folder, by a lock that the processes of a call inherit.

    python -m examples.shared.locks FD

locks an open file of the calling shell. It is Python's, since not every system has `flock`.
"""

from __future__ import annotations

import fcntl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def try_lock(descriptor: int) -> bool:
    """Lock an open file exclusively; False if another process holds the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(descriptor: int) -> None:
    """Lock an open file exclusively, as soon as it is free."""
    if not try_lock(descriptor):
        print("waiting for another call, or for processes of a killed one, to end", flush=True)
        fcntl.flock(descriptor, fcntl.LOCK_EX)


@contextmanager
def locked(out: Path, wait: bool = True) -> Iterator[int | None]:
    """Hold the lock of a folder, which is created if necessary.

    Yields:
        The file descriptor, or None if `wait` is false and the lock is not free. Processes that
        inherit the descriptor hold the lock as well: the next call waits for those that a killed
        call has left behind.
    """
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("a") as file:
        if wait:
            wait_for_lock(file.fileno())
        yield file.fileno() if wait or try_lock(file.fileno()) else None


if __name__ == "__main__":
    wait_for_lock(int(sys.argv[1]))
