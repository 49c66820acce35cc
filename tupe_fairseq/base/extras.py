"""Imports of libraries that only an extra of this package installs."""

from typing import Any

from .errors import UsageError


def import_extra(module: str, extra: str) -> Any:
    """Import a module and return its top-level package.

    Args:
        module: a dotted name.
        extra: the extra that installs it.

    Raises:
        UsageError: the module is not installed, or cannot be imported.
    """
    try:
        return __import__(module)
    except ImportError as error:
        package = module.partition(".")[0]
        if not isinstance(error, ModuleNotFoundError) or error.name not in (package, module):
            raise UsageError(
                f"this needs {package}, which cannot be imported: {error}."
            ) from error
        raise UsageError(
            f"this needs {package}, which is not installed: pip install 'tupe_fairseq[{extra}]'"
        ) from error
