"""Settings that a checkpoint has recorded, in today's form and in older ones."""

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from omegaconf.errors import OmegaConfBaseException

from ..errors import CheckpointError


def recorded_settings(state: Mapping[str, Any], group: str, source: object) -> dict[str, Any]:
    """One group of a checkpoint's settings.

    Args:
        state: the checkpoint.
        group: "model", "task", "distributed_training", ...
        source: the file, for the message.

    Raises:
        CheckpointError: the settings are not a table of names and values.
    """
    # Until 2020 fairseq recorded `args`, a flat Namespace. Since then it records `cfg`, a tree
    # whose branches may be Namespaces.
    settings = state.get("args")
    if settings is None:
        settings = _as_dict(state.get("cfg"), source).get(group)
    return _as_dict(settings, source)


def _as_dict(settings: Any, source: object) -> dict[str, Any]:
    try:
        if settings is None:
            return {}
        return dict(vars(settings) if isinstance(settings, Namespace) else settings)
    except (TypeError, ValueError, OmegaConfBaseException) as error:
        raise CheckpointError(
            f"{source} cannot be loaded: its settings are not a table of names and values."
        ) from error
