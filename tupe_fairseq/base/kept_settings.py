"""Settings that must not change between the calls that write a folder."""

import json
from pathlib import Path
from typing import Any

from .errors import UsageError
from .files import replacing

#: The file in the directory.
NAME = "settings.json"


def keep(out: Path, settings: dict[str, Any], of: str = "a run with other settings") -> None:
    """Write settings as JSON, or compare them with those of an earlier call.

    Args:
        out: the directory that --out names.
        settings: what decides the results.
        of: what the directory holds if they differ.

    Raises:
        UsageError: they differ.
    """
    path = out / NAME
    out.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        with replacing(path) as aside:
            aside.write_text(json.dumps(settings, indent=1))
    elif json.loads(path.read_text()) != settings:
        raise UsageError(f"--out {str(out)!r} holds {of} (see {NAME}); give another directory.")
