"""The results of a sweep, one JSON object per line: written by sweep.py, read by collect.py."""

import json
import os
from pathlib import Path
from typing import Any


def read_results(path: Path) -> list[dict[str, Any]]:
    """All complete lines; a kill may have cut off the last one, which is left out then.

    Raises:
        json.JSONDecodeError: a line is not JSON.
    """
    if not path.exists():
        return []
    *lines, _ = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines]


def append(path: Path, result: dict[str, Any]) -> None:
    """Append a line in one write, after removing an incomplete last line.

    Raises:
        OSError: it cannot be written, for instance because the disk is full.
    """
    try:
        with path.open("ab+") as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
            file.write(json.dumps(result).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        # Errors of writing do not name the file.
        raise OSError(error.errno, error.strerror, str(path)) from error
