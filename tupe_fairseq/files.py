"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import UsageError

#: Of the errors that name no file, those that only writing ends in: the disk is full.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Write aside and rename: yields a path beside ``path``, which takes its place at the end.

    Where the block raises, or the process is killed, ``path`` stays as it was.

    Raises:
        UsageError: it cannot be written: no such folder, a full disk, no right to.
    """
    path = Path(path)
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield aside
        os.replace(aside, path)
    except OSError as error:
        # The block may read other files as well.
        if str(error.filename) == str(aside) or error.errno in FULL:
            raise UsageError(f"cannot write {path}: {error.strerror}.") from error
        raise
    finally:
        with suppress(OSError):
            aside.unlink()
