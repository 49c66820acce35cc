"""The results of a sweep: one JSON object a line, written by sweep.py, read by collect.py."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def read_results(path: Path) -> list[dict[str, Any]]:
    """All whole lines; the last may have been cut off by a kill, and is left out then.

    Raises:
        json.JSONDecodeError: a line is no JSON.
    """
    if not path.exists():
        return []
    *lines, _ = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines]


def append(path: Path, result: dict[str, Any]) -> None:
    """Add a line, in one write; a part that a kill has left of the last line is removed first.

    Raises:
        OSError: it cannot be written, on a full disk, say.
    """
    try:
        with path.open("ab+") as file:
            file.seek(0)
            whole = file.read().rfind(b"\n") + 1
            file.truncate(whole)
            file.write(json.dumps(result).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        # Errors of writing do not name the file.
        raise OSError(error.errno, error.strerror, str(path)) from error
