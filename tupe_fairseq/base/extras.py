"""Imports of libraries that only an extra of this package installs."""

from typing import Any

from .errors import UsageError

#: A part that is imported with its package, which imports its parts when they are used. This one
#: imports what the models of transformers need, torchaudio too where it is installed.
PARTS = {"transformers": "transformers.processing_utils"}
#: pip installs it with fairseq, whatever torch is there.
TORCHAUDIO = "; only fairseq's speech tasks use torchaudio: pip uninstall torchaudio"


def import_extra(module: str, extra: str) -> Any:
    """Import a module and return its top-level package.

    Args:
        module: a dotted name.
        extra: the extra that installs it.

    Raises:
        UsageError: the module is not installed, or cannot be imported.
    """
    try:
        return __import__(PARTS.get(module, module))
    except (ImportError, OSError) as error:
        package = module.partition(".")[0]
        if not isinstance(error, ModuleNotFoundError) or error.name not in (package, module):
            way_out = TORCHAUDIO if "torchaudio" in str(error) else ""
            raise UsageError(
                f"this needs {package}, which cannot be imported: {error}{way_out}."
            ) from error
        raise UsageError(
            f"this needs {package}, which is not installed: pip install 'tupe_fairseq[{extra}]'"
        ) from error
