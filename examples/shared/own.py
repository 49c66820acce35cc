"""Encodings outside of the package, which the studies take by --user-dir."""

import os
from pathlib import Path

from examples.shared.markdown import ROOT
from tupe_fairseq.fairseq.commands import USER_DIR


def user_dir() -> Path:
    """The plugin of fairseq-train: the folder of the user's encodings, or the package."""
    return Path(os.environ.get(USER_DIR) or ROOT / "tupe_fairseq")
