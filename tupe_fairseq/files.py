"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Write aside and rename: yields a path beside ``path``, which takes its place at the end.

    Where the block raises, or the process is killed, ``path`` stays as it was.
    """
    path = Path(path)
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield aside
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
