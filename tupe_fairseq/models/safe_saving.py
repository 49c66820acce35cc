"""Checkpoints that appear whole or not at all, under fairseq's own names.

fairseq writes one checkpoint aside and renames it, but copies it in place to its other names
(checkpoint_last.pt among them): a process killed while copying leaves a part, from which nothing
resumes. And where the disk is full, it tries thrice to write into the same file. Importing this
module replaces both functions.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.file_io import IOPathManager, PathManager

from ..errors import UsageError, ends_commands_in_one_line
from ..files import replacing


def copy_whole(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
    """In place of `PathManager.copy`.

    Raises:
        UsageError: the copy cannot be written.
    """
    _write(dst_path, lambda aside: shutil.copyfile(src_path, aside))
    return True


def save_whole(obj: Any, filename: str, async_write: bool = False) -> None:
    """In place of `checkpoint_utils.torch_persistent_save`.

    Raises:
        UsageError: the checkpoint cannot be written.
    """

    def write(aside: Path) -> None:
        with open(aside, "wb") as file:
            torch.save(obj, file)

    _write(filename, write)


@ends_commands_in_one_line
def _write(path: str, write: Callable[[Path], Any]) -> None:
    # What killed processes have left of earlier ones; only one rank writes.
    for part in Path(path).parent.glob(f".{Path(path).name}.*.partial"):
        part.unlink(missing_ok=True)
    try:
        with replacing(path) as aside:
            write(aside)
    except (OSError, RuntimeError) as error:
        # torch tells of a full disk by a RuntimeError.
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise UsageError(
            f"cannot write the checkpoint {path}: {reason}; what was there before is whole."
        ) from error


# With iopath, paths may be remote, and its own ways are taken.
if IOPathManager is None:
    PathManager.copy = staticmethod(copy_whole)
    checkpoint_utils.torch_persistent_save = save_whole
