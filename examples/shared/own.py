"""Encodings outside of the package, which the studies take by --user-dir."""

import os
from argparse import Namespace
from pathlib import Path

from examples.shared.markdown import ROOT

#: The variable that names the folder for the processes that a study starts.
VARIABLE = "TUPE_EXAMPLES_USER_DIR"


def user_dir() -> Path:
    """The plugin of fairseq-train: the folder of the user's encodings, or the package."""
    return Path(os.environ.get(VARIABLE) or ROOT / "tupe_fairseq")


def import_own(folder: Path | None = None) -> None:
    """Register the encodings of a folder, here and in the processes that are started.

    Args:
        folder: by default that of the process that has started this one, if there is one.

    Raises:
        FileNotFoundError: there is no such folder.
    """
    if folder is not None:
        os.environ[VARIABLE] = str(folder.absolute())
    if os.environ.get(VARIABLE):
        from fairseq.utils import import_user_module

        import_user_module(Namespace(user_dir=os.environ[VARIABLE]))
