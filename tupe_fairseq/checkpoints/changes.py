"""Warn of options in which a training differs from the checkpoint that it starts from.

Most have no parameters, so the checkpoint loads, and another model than the trained one goes on.
"""

import logging
from argparse import Namespace
from collections.abc import Iterator, Mapping
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
    """Log one warning that names the options whose values differ from the recorded ones.

    Args:
        model: what the model takes as arguments.
        complete: its arguments.
        recorded: settings in the checkpoint. Options that it does not record had their default.
            Stock fairseq's checkpoints record no encoding, and are compared with nothing.
        path: of the checkpoint.
    """
    if "position_encoding" not in recorded or get_global_rank() != 0:
        return
    told = []
    for option, then in _recorded_options(model, complete.position_encoding, recorded):
        if (now := getattr(complete, option.name)) != then:
            told.append(f"{option.flag} is {now!r}, but was {then!r} ({_way_back(option, then)})")
    if told:
        logger.warning(
            "%s was trained with other options, and this training changes its model: %s",
            path,
            "; ".join(told),
        )


def _recorded_options(
    model: ModelArguments, encoding: str, recorded: Mapping[str, Any]
) -> Iterator[tuple[Option, Any]]:
    """The options that should stay, and their values in training."""
    free = FREE if _trained_beyond(encoding, recorded) else FREE | FREE_UNLESS_TRAINED
    for option in (*model.options(), *POSITION_ENCODINGS[encoding].options()):
        if option.name not in free:
            default = model.option_defaults.get(option.name, option.default)
            value = recorded.get(option.name)
            yield option, default if value is None else value


def _trained_beyond(encoding: str, recorded: Mapping[str, Any]) -> bool:
    """Whether the options for longer texts acted in training."""
    extended = recorded.get("extend_positions") == "toeplitz"
    return extended or encoding == "toeplitz" or recorded.get("rope_scaling") is not None


def _way_back(option: Option, then: Any) -> str:
    if then is None:
        return f"to keep it, leave out {option.flag}"
    if option.type is bool:
        flag = option.flag if then else option.flag.replace("--", "--no-", 1)
        return f"to keep it, pass {flag}"
    return f"to keep it, pass {option.flag} {then}"
