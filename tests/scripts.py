"""Loads the scripts under examples/, which are no packages."""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]


@functools.cache
def load(path: str) -> ModuleType:
    """The script at a path below the repository's root, as a module of its own name.

    Once only: processes that it starts look for its functions under that name.
    """
    file = ROOT / path
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    # Where its processes look for its functions.
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module
