"""Find the intact checkpoints of a folder.

fairseq copies checkpoint_last.pt in place, so a process that is killed meanwhile leaves a part of
it. `scripts/steps.sh` runs this file as a program; it imports no torch, which takes seconds.
"""

import errno
import os
import shutil
import sys
import zipfile
from pathlib import Path


def is_intact(checkpoint: Path) -> bool:
    """Whether a checkpoint, which is a zip archive, agrees with its checksums.

    Raises:
        OSError: it cannot be read.
    """
    try:
        with zipfile.ZipFile(checkpoint) as archive:
            return archive.testzip() is None
    except MemoryError:
        raise
    except OSError as error:
        # Offsets in a damaged archive may be negative.
        if error.errno != errno.EINVAL:
            raise
        return False
    # zipfile does not document what else a damaged archive raises.
    except Exception:
        return False


def newest_intact_checkpoint(folder: Path, besides: Path | None = None) -> Path | None:
    """The intact checkpoint*.pt of a folder that was written last, without `besides`, or None."""
    checkpoints = [path for path in folder.glob("checkpoint*.pt") if path != besides]
    checkpoints.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    return next(filter(is_intact, checkpoints), None)


def repair(folder: Path) -> None:
    """Remove damaged checkpoints; make checkpoint_last.pt the newest intact one if it is missing.

    Files that are no zip archives stay: torch's older format has no checksums to judge it by.

    Raises:
        OSError: a checkpoint cannot be read, in which case none is removed.
    """
    damaged = [path for path in folder.glob("checkpoint*.pt") if _is_damaged(path)]
    # fairseq writes checkpoint*.pt.tmp; this function, checkpoint_last.tmp.
    for path in (*damaged, *folder.glob("checkpoint*.tmp")):
        path.unlink()
    last = folder / "checkpoint_last.pt"
    if last.exists():
        return
    newest = newest_intact_checkpoint(folder)
    if newest is not None:
        shutil.copyfile(newest, last.with_suffix(".tmp"))
        os.replace(last.with_suffix(".tmp"), last)


def _is_damaged(checkpoint: Path) -> bool:
    """Whether a file is a damaged zip archive, or a part of one; or is empty or begins with zeros.

    The latter are left where the machine stopped before the file was on the disk.
    """
    if is_intact(checkpoint):
        return False
    with checkpoint.open("rb") as file:
        begin = file.read(2)
    return begin in (b"", b"P", b"PK", bytes(1), bytes(2)) or zipfile.is_zipfile(checkpoint)


if __name__ == "__main__":
    try:
        repair(Path(sys.argv[1]))
    except OSError as error:
        raise SystemExit(f"cannot repair {error.filename}: {error.strerror}") from error
