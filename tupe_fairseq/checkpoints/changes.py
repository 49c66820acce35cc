"""Warn of options in which a training differs from the checkpoint that it starts from.

Most have no parameters, so the checkpoint loads, and another model than the trained one goes on.
"""

import logging
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq.distributed.utils import get_global_rank

from ..arguments.declaration import ModelArguments
from ..options import Option
from ..position import POSITION_ENCODINGS

logger = logging.getLogger(__name__)

#: Options that may change: they are checked elsewhere, are about speed, act in training only, or
#: are for longer texts.
FREE = {
    *("position_encoding", "attention_backend", "compile_layers", "checkpoint_activations"),
    *("deberta_dropout", "randomize_positions"),
    *("extend_positions", "trained_positions", "rope_original_positions"),
    *("rope_scaling_factor", "rope_scaling_settings"),
}
#: Further options for longer texts. Encodings that are trained with them must keep them.
FREE_UNLESS_TRAINED = {"rope_scaling", "toeplitz_far", "toeplitz_slope"}


def warn_of_changes(
    model: ModelArguments, complete: Namespace, recorded: Mapping[str, Any], path: Path
) -> None:
    """Log one warning that names the options whose values differ from those of the checkpoint.

    Options that it does not record had their default. Stock fairseq's checkpoints record no
    encoding, and are compared with nothing.
    """
    if "position_encoding" not in recorded or get_global_rank() != 0:
        return
    encoding, extension = complete.position_encoding, recorded.get("extend_positions")
    # Whether options for longer texts acted in training.
    extended = extension == "toeplitz" or recorded.get("rope_scaling") is not None
    free = FREE if extended else FREE | FREE_UNLESS_TRAINED
    told = []
    for option in (*model.options(), *POSITION_ENCODINGS[encoding].options()):
        if option.name in free:
            continue
        now, then = getattr(complete, option.name), recorded.get(option.name)
        if then is None:
            then = model.option_defaults.get(option.name, option.default)
        if now != then:
            told.append(f"{option.flag} is {now!r}, but was {then!r} ({_way_back(option, then)})")
    if told:
        logger.warning(
            "%s was trained with other options, and this training changes its model: %s",
            path,
            "; ".join(told),
        )


def _way_back(option: Option, then: Any) -> str:
    if then is None:
        return f"to keep it, leave out {option.flag}"
    if option.type is bool:
        flag = option.flag if then else option.flag.replace("--", "--no-", 1)
        return f"to keep it, pass {flag}"
    return f"to keep it, pass {option.flag} {then}"
