"""Read files of `torch.save` without running code from them. Importing this needs no fairseq."""

import errno
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import torch

from ...base.errors import CheckpointError, UsageError


def read_file(path: str | Path) -> Any:
    """Read what `torch.save` has written. No code in it is run; tensors are mapped into memory.

    Reading the settings of a checkpoint that also holds Adam's state is therefore cheap. Copy
    tensors that are needed later: a process that reads a mapped tensor after the file was
    overwritten in place (by `torch.save` to the same path, or by fairseq's copies) ends with a bus
    error.

    Raises:
        CheckpointError: there is no such file, it is damaged, or it holds classes that are not
            listed.
        UsageError: the file cannot be read, though it may be whole.
    """
    try:
        # torch also reads its format of before 1.6, but can map the zip format only.
        mapped = zipfile.is_zipfile(path)
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        culprit = re.search(r"GLOBAL ([\w.]+)", str(error))
        if culprit is None:
            raise _unreadable(path) from error
        raise CheckpointError(
            f"{path} cannot be loaded: it holds {culprit[1].removeprefix('builtins.')}, which is "
            "not a tensor or a setting and could run code."
        ) from error
    except FileNotFoundError as error:
        raise CheckpointError(f"there is no file {path}.") from error
    except MemoryError:
        raise
    except OSError as error:
        # torch's reader also raises EINVAL, or no number, for a damaged file.
        if error.errno in (None, errno.EINVAL):
            raise _unreadable(path) from error
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    # torch's reader raises errors of any type for a damaged file.
    except Exception as error:
        raise _unreadable(path) from error


def _unreadable(path: str | Path) -> CheckpointError:
    return CheckpointError(f"{path} cannot be loaded: it is not a checkpoint, or is damaged.")
