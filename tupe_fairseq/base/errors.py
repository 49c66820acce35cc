"""Errors that a user can correct, each reported in one line.

`UsageError` is the base class; its subclasses say what is wrong. In `one_line_endings`, a program
exits with the message of one of them. `TUPE_FAIRSEQ_TRACEBACK=1` in the environment also shows the
traceback.
"""

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

#: Environment variable that asks for the traceback before the line.
TRACEBACK = "TUPE_FAIRSEQ_TRACEBACK"


class UsageError(ValueError):
    """Base class of the errors that a user can correct.

    The message is one line that names the argument, its value and what to do. In Python and in
    notebooks the error is raised like any other. A fairseq command prints that line on stderr and
    exits with status 1 (`commands.ends_commands_in_one_line`).
    """

    def __init__(self, message: str):
        # Names read from files may hold control characters.
        super().__init__("".join(c if c.isprintable() else ascii(c)[1:-1] for c in message))


class ConfigurationError(UsageError):
    """An argument has an invalid value, or two arguments contradict each other."""


class CheckpointError(UsageError):
    """A checkpoint cannot be loaded, or does not fit the model."""


class DataError(UsageError):
    """Data, a dictionary, a tokenizer or a text cannot be used."""


class BackendError(UsageError):
    """An attention backend does not support the model, or cannot run here."""


@contextmanager
def one_line_endings() -> Iterator[None]:
    """Exit with the message of a `UsageError` that is raised inside the block.

    With `TUPE_FAIRSEQ_TRACEBACK=1` the traceback is printed before the line.

    Raises:
        SystemExit: in place of a `UsageError`; Python prints its message and returns status 1.
    """
    try:
        yield
    except UsageError as error:
        if os.environ.get(TRACEBACK, "0") not in ("", "0"):
            traceback.print_exception(error)
        raise SystemExit(f"error: {error}") from error
