"""Imports of libraries that only an extra of this package installs."""

from typing import Any

from .errors import UsageError


def import_extra(module: str, extra: str) -> Any:
    """Import a module and return its top-level package.

    Args:
        module: a dotted name.
        extra: the extra that installs it.

    Raises:
        UsageError: the module is not installed.
    """
    try:
        return __import__(module)
    except ImportError as error:
        raise UsageError(
            f"this needs {module.partition('.')[0]}, which is not installed: "
            f"pip install 'tupe_fairseq[{extra}]'"
        ) from error
