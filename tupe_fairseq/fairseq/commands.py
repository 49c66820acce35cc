"""Which fairseq command this process runs, and the argument --user-dir of our own commands.

The value is the environment variable `TUPE_FAIRSEQ_COMMAND`, so that processes which a command
spawns inherit it. Programs that call fairseq's `main` themselves set it by `running`. Where it is
not set, the name of the program decides: `fairseq-train`, `python -m fairseq_cli.train`, ...
"""

import argparse
import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from ..base.errors import ConfigurationError, UsageError, one_line_endings

P = ParamSpec("P")
R = TypeVar("R")

#: Environment variable with the name of the command.
COMMAND = "TUPE_FAIRSEQ_COMMAND"
#: Environment variable with the folder of --user-dir, for the processes that a command starts.
USER_DIR = "TUPE_FAIRSEQ_USER_DIR"


def current() -> str | None:
    """The fairseq command of this process: "train", "generate", "eval-lm", ..., or None.

    `fairseq-hydra-train` counts as "train".
    """
    return os.environ.get(COMMAND) or _of_program(Path(sys.argv[0]))


def _of_program(program: Path) -> str | None:
    if program.name.startswith("fairseq-"):
        name = program.name.removeprefix("fairseq-")
    elif program.parent.name == "fairseq_cli":
        name = program.stem.replace("_", "-")
    elif program.parts[-3:] == ("submitit", "core", "_submit.py"):
        # A job of fairseq-hydra-train with hydra's launcher for Slurm.
        name = "train"
    else:
        return None
    return name.removeprefix("hydra-")


@contextmanager
def running(name: str) -> Iterator[None]:
    """Declare that the block runs a fairseq command, for programs with a name of their own.

    These also call `models.prepare_process`.

    Args:
        name: of the command, without `fairseq-`, e.g. "train".
    """
    before = os.environ.get(COMMAND)
    os.environ[COMMAND] = name
    try:
        yield
    finally:
        if before is None:
            del os.environ[COMMAND]
        else:
            os.environ[COMMAND] = before


def ends_commands_in_one_line(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that fairseq calls: the command exits with the line of a `UsageError`.

    fairseq and hydra wrap ordinary exceptions in tracebacks of their own. SystemExit passes
    through both and prints its message. Outside of commands the error is raised unchanged.
    """

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except UsageError:
            # Only now: a training step pays nothing for it.
            if not current():
                raise
            with one_line_endings():
                raise

    return wrapper


def add_user_dir(parser: argparse.ArgumentParser) -> None:
    """Add --user-dir to a command that reads models; parsing it imports the folder."""
    told = "folder with encodings of your own"
    parser.add_argument("--user-dir", action=_UserDir, metavar="FOLDER", help=told)


class _UserDir(argparse.Action):
    def __call__(
        self, parser: Any, namespace: Any, values: Any, option: str | None = None
    ) -> None:
        folder = Path(values).absolute()
        if not folder.is_dir():
            raise ConfigurationError(f"--user-dir is {values!r}, but there is no such folder.")
        os.environ[USER_DIR] = str(folder)
        import_user_dir()
        setattr(namespace, self.dest, folder)


def import_user_dir() -> None:
    """Register the encodings of --user-dir, of this process or of the one that has started it."""
    if os.environ.get(USER_DIR):
        from fairseq.utils import import_user_module

        import_user_module(argparse.Namespace(user_dir=os.environ[USER_DIR]))
