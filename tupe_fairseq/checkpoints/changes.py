"""Options in which a training differs from the checkpoint that it starts from.

Most have no parameters, so the checkpoint loads, and another model than the trained one goes on.
How much an option may differ is part of its declaration (`options.Mark`).
"""

import logging
from argparse import Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fairseq.distributed.utils import get_global_rank

from ..errors import CheckpointError
from ..options import Mark, Option

logger = logging.getLogger(__name__)


def refuse_changes(
    options: Iterable[Option], complete: Namespace, recorded: Mapping[str, Any], path: Path
) -> None:
    """Refuse a checkpoint that was trained with another value of a fixed option.

    Args:
        options: of the model.
        complete: their values.
        recorded: their values in the checkpoint, as far as they are known.
        path: of the checkpoint.

    Raises:
        CheckpointError: a value differs.
    """
    for option in options:
        then = recorded.get(option.name)
        if Mark.FIXED not in option.marks or then is None:
            continue
        if (now := getattr(complete, option.name)) != then:
            raise CheckpointError(
                f"{option.flag} is {now!r}, but {path} was trained with {then!r}: give that "
                "value, or train from scratch."
            )


def warn_of_changes(
    options: Iterable[Option], complete: Namespace, recorded: Mapping[str, Any], path: Path
) -> None:
    """Log one warning that names the options whose values differ from those of the checkpoint.

    Options that it does not record had their default. Stock fairseq's checkpoints record no
    encoding, and are compared with nothing. The arguments are those of `refuse_changes`.
    """
    if "position_encoding" not in recorded or get_global_rank() != 0:
        return
    free = {Mark.FREE}
    # Whether options for longer texts acted in training.
    if recorded.get("extend_positions") != "toeplitz" and recorded.get("rope_scaling") is None:
        free.add(Mark.FOR_LONGER_TEXTS)
    changes = []
    for option in options:
        now, then = getattr(complete, option.name), recorded.get(option.name)
        if then is None:
            then = option.default
        if now != then and free.isdisjoint(option.marks):
            way_back = _way_back(option, then)
            changes.append(f"{option.flag} is {now!r}, but was {then!r} (to keep it, {way_back})")
    if changes:
        logger.warning(
            "%s was trained with other options, and this training changes its model: %s",
            path,
            "; ".join(changes),
        )


def _way_back(option: Option, then: Any) -> str:
    if then is None:
        return f"leave out {option.flag}"
    if option.type is bool:
        return "pass " + (option.flag if then else option.flag.replace("--", "--no-", 1))
    return f"pass {option.flag} {then}"
