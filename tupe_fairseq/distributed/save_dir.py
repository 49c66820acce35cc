"""At most one training writes to a folder."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import ConfigurationError
from ..files import lock


@contextmanager
def alone_in(folder: str, patience: int = 15) -> Iterator[None]:
    """Lock a folder against other trainings that are started by `launch`; create it if needed.

    Args:
        folder: --save-dir.
        patience: seconds to wait for the lock. Data-loading processes may outlive a killed
            training by five seconds, and hold its lock.

    Raises:
        ConfigurationError: the folder cannot be created, or another training holds the lock.
    """
    try:
        os.makedirs(folder, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise ConfigurationError(f"--save-dir is {folder!r}: {error.strerror}.") from error
    try:
        while not lock(descriptor):
            if patience <= 0:
                raise ConfigurationError(
                    f"--save-dir is {folder!r}, but another training writes there: wait for its "
                    "end, or name another folder."
                )
            patience -= 1
            time.sleep(1)
        yield
    finally:
        os.close(descriptor)
