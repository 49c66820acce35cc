"""One call at a time in a folder, by a lock that the processes of a call inherit.

    python -m examples.shared.locks FD

locks an open file of the calling shell. It is Python's, since not every system has `flock`, and
imports nothing of the package, which takes seconds.
"""

import fcntl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def lock(descriptor: int, wait: bool = True) -> bool:
    """Lock an open file exclusively; False if it is not free and `wait` is false."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if not wait:
            return False
        print("waiting for another call, or for processes of a killed one, to end", flush=True)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        # Some network file systems have no locks.
        pass
    return True


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
        yield file.fileno() if lock(file.fileno(), wait) else None


if __name__ == "__main__":
    lock(int(sys.argv[1]))
