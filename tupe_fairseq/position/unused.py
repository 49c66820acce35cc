"""Options that have no effect without another."""

import logging
from typing import Any

from ..base.errors import ConfigurationError

logger = logging.getLogger(__name__)


def refuse_unused(flag: str, value: Any, needs: str) -> None:
    """Raise a ConfigurationError for an option that was given without what it needs."""
    raise ConfigurationError(
        f"{flag} is {value}, but has no effect without {needs}: give both, or leave it out."
    )


def warn_unused(flag: str, value: Any, needs: str) -> None:
    """Log that an option has no effect; a checkpoint may have recorded it."""
    logger.warning(f"{flag} is {value}, but has no effect without {needs}")
