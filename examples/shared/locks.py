"""One call at a time in a folder, by a lock that the processes of a call inherit."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tupe_fairseq.files import lock


@contextmanager
def locked(out: Path, wait: bool = True) -> Iterator[int | None]:
    """Lock a folder, which is created if necessary, until the block ends.

    Yields:
        The file descriptor, or None if `wait` is false and the lock is not free. Processes that
        inherit the descriptor hold the lock as well: the next call waits for those that a killed
        call has left behind.
    """
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("a") as file:
        free = lock(file.fileno())
        if wait and not free:
            print("waiting for another call, or for processes of a killed one, to end", flush=True)
            free = lock(file.fileno(), wait=True)
        yield file.fileno() if free else None
