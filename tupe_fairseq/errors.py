"""What a user did wrong, told in one line."""

from __future__ import annotations

import functools
import sys
from pathlib import Path


class UsageError(ValueError):
    """Something asked for cannot be done; the message names the argument, its value, the way out.

    Raised as it is in Python and notebooks. Under a fairseq command it ends the command: the line
    on stderr, exit status 1, no traceback (`ends_commands_in_one_line`).
    """

    def __init__(self, message: str):
        # Names from files may hold anything.
        super().__init__("".join(c if c.isprintable() else ascii(c)[1:-1] for c in message))


def under_fairseq_command(kind: str = "") -> bool:
    """Whether this process was started as `fairseq-train`, `python -m fairseq_cli.train`, ...

    Args:
        kind: only commands whose name holds this, e.g. "train".
    """
    program = Path(sys.argv[0])
    is_fairseq = program.name.startswith("fairseq-") or program.parent.name == "fairseq_cli"
    return is_fairseq and kind in program.name


def ends_commands_in_one_line(function):
    """Decorate an entry point that fairseq calls: a `UsageError` ends the command in one line.

    fairseq and hydra wrap ordinary exceptions in tracebacks of their own; SystemExit passes
    through both and prints its message.
    """

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except UsageError as error:
            if under_fairseq_command():
                raise SystemExit(f"error: {error}") from error
            raise

    return wrapper
