"""Directories that are written as a whole, or not at all."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ..base.errors import ConfigurationError, UsageError
from ..base.files import move


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files by their names, which may have folders."""
    for name, contents in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(contents)


@contextmanager
def building(out: str | Path) -> Iterator[Path]:
    """Write a directory atomically: yields a temporary folder that is renamed by `files.move`.

    Raises:
        UsageError: ``out`` exists, or cannot be written.
    """
    out = Path(out).absolute()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigurationError(f"--out {str(out)!r} exists already; name a new directory.")
    folder = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".partial", dir=out.parent))
        folder.chmod(0o755)
        yield folder
        move(folder, out)
    except (OSError, RuntimeError) as error:
        # torch reports a full disk as a RuntimeError.
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise UsageError(f"cannot write {out}: {reason}.") from error
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
