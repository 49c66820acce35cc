"""transformers.json: what a model of transformers has and one of fairseq has not."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..base.errors import CheckpointError
from .architectures import ARCHITECTURES
from .models import CROSS_ENCODER

#: The file in a directory of this package.
KEPT = "transformers.json"
#: What classification heads have there, and not in fairseq.
OF_HEADS = ("classifier_norm", "classifier_pooling")
#: Settings of transformers without a counterpart in fairseq.
SETTINGS = (
    "pooler_dropout",
    "initializer_range",
    "problem_type",
    *OF_HEADS,
    *CROSS_ENCODER,
    *(name for architecture in ARCHITECTURES for name in architecture.kept),
)
#: Says that the language modeling head is untrained.
HEADLESS = "headless"


def read_kept(folder: Path) -> dict[str, Any]:
    """The entries of the file; none if there is no file.

    Raises:
        CheckpointError: it is damaged.
    """
    path = folder / KEPT
    if not path.is_file():
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from error


def kept_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that the file keeps."""
    return {name: settings[name] for name in SETTINGS if settings.get(name) is not None}


def kept_text(kept: Mapping[str, Any]) -> bytes:
    """Contents of the file."""
    return (json.dumps(kept, indent=2) + "\n").encode()
