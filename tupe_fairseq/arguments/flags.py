"""Flags of position encodings and attention; settings that belong to other groups."""

import argparse
from argparse import Namespace
from collections.abc import Collection, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ..attention import ATTENTION_BACKENDS
from ..errors import ConfigurationError
from ..position import POSITION_ENCODINGS, Option, known_options
from ..position.shape import check_window

#: Values of --extend-positions.
EXTENSIONS = ("hierarchical",)
#: Types of options, in words.
TYPES = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}


def add_position_args(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the encodings and of attention that all models have."""
    parser.add_argument(
        "--position-encoding",
        metavar="NAME",
        help=f"position encoding, one of: {', '.join(POSITION_ENCODINGS)} (default: tupe_r)",
    )
    parser.add_argument(
        "--attention-backend",
        metavar="NAME",
        help=f"how attention is computed: {', '.join(ATTENTION_BACKENDS.names())} (default: auto)",
    )
    parser.add_argument(
        "--attention-window",
        type=int,
        metavar="W",
        help="tokens attend to each other up to this distance only; an untied [CLS] sees all "
        "tokens and is seen by all (default: no limit)",
    )
    parser.add_argument(
        "--global-every",
        type=int,
        metavar="N",
        help="layers 0, N, 2N, ... have no --attention-window (default: 0, all layers have it)",
    )
    parser.add_argument(
        "--extend-positions",
        choices=EXTENSIONS,
        help="`hierarchical`: extend the position table of a checkpoint with fewer positions than "
        "--max-positions, by hierarchical decomposition (default: an error)",
    )
    for option in known_options().values():
        boolean = {"action": argparse.BooleanOptionalAction}
        kind = boolean if option.type is bool else {"type": option.type}
        parser.add_argument(option.flag, help=f"{option.help} ({_defaults(option)})", **kind)


def _defaults(option: Option) -> str:
    """The encodings that take an option, and its default in each."""
    return ", ".join(
        f"{name}: {own.default}"
        for name, cls in POSITION_ENCODINGS.items()
        for own in cls.options()
        if own.name == option.name
    )


def complete_position_options(complete: Namespace, defaults: Mapping[str, Any]) -> None:
    """Set those options of the chosen encoding that are not set, in place.

    Args:
        complete: arguments of the model.
        defaults: where the model's own differ from the encoding's.

    Raises:
        ConfigurationError: an option of another encoding is set, which would have no effect; or a
            window has no meaning.
    """
    name = complete.position_encoding
    if complete.extend_positions not in (None, *EXTENSIONS):
        raise ConfigurationError(
            f"--extend-positions is {complete.extend_positions!r}, but must be one of: "
            f"{', '.join(EXTENSIONS)}."
        )
    check_type("--attention-window", int, complete.attention_window)
    check_type("--global-every", int, complete.global_every)
    check_window(complete.attention_window, complete.global_every)
    own = {option.name: option for option in POSITION_ENCODINGS[name].options()}
    for option in known_options().values():
        given = getattr(complete, option.name, option.default)
        if option.name not in own and given not in (None, option.default):
            raise ConfigurationError(
                f"{option.flag} is {given!r}, but --position-encoding {name} does not take it."
            )
    for option in own.values():
        if not hasattr(complete, option.name):
            setattr(complete, option.name, defaults.get(option.name, option.default))
        # In Python, these may be a mapping.
        if option.name != "rope_scaling_settings":
            check_type(option.flag, option.type, getattr(complete, option.name))
    _check_kept_layers(complete)


def check_type(flag: str, kind: type, value: Any) -> None:
    """Check the type of a value: hydra reads `no`, for instance, as a string, which is true.

    Raises:
        ConfigurationError: the value is neither None nor of this type. An int is a float, too.
    """
    accepted = (int, float) if kind is float else kind
    right = isinstance(value, accepted) and (kind is bool or not isinstance(value, bool))
    if kind in TYPES and value is not None and not right:
        raise ConfigurationError(f"{flag} must be {TYPES[kind]}, but is {value!r}.")


def _check_kept_layers(complete: Namespace) -> None:
    """Check that pruning keeps what each layer computes.

    Raises:
        ConfigurationError: the new index of a layer would change its attention.
    """
    # By flag: N, and the index of the first layer whose kind differs; then each N-th.
    kinds = {
        "--global-every": (complete.global_every, 0),
        "--rope-skip-every": (skip := getattr(complete, "rope_skip_every", 0) or 0, skip - 1),
    }
    for side in ("encoder", "decoder"):
        given = getattr(complete, f"{side}_layers_to_keep", None)
        if not given:
            continue
        # fairseq keeps the layers in their order and counts them anew.
        try:
            kept = sorted(int(index) for index in given.split(","))
        except ValueError:
            raise ConfigurationError(
                f"--{side}-layers-to-keep must be numbers of layers such as 0,2,4, but is {given}."
            ) from None
        for flag, (every, first) in kinds.items():
            if every and any(
                (old % every == first) != (new % every == first) for new, old in enumerate(kept)
            ):
                raise ConfigurationError(
                    f"--{side}-layers-to-keep is {given}, but with {flag} {every} a layer would "
                    "change: the kept layers are renumbered. Choose layers that the flag selects "
                    "both before and after renumbering, or neither."
                )


def position_options(complete: Any) -> dict[str, Any]:
    """The options of the chosen encoding, from complete arguments."""
    options = POSITION_ENCODINGS[complete.position_encoding].options()
    return {option.name: getattr(complete, option.name) for option in options}


def record_lengths(complete: Any, names: Collection[str]) -> None:
    """Set the options that follow from the length, in place, so that checkpoints keep them.

    Args:
        complete: arguments of the model.
        names: the arguments that limit the length; where they differ, nothing is recorded.
    """
    lengths = {getattr(complete, name) for name in names}
    if len(lengths) == 1:
        encoding = POSITION_ENCODINGS[complete.position_encoding]
        vars(complete).update(encoding.recorded(position_options(complete), *lengths))


def training_setting(args: Any, group: str, name: str) -> Any:
    """A setting that is not the model's, from a flat Namespace or from hydra's whole tree.

    Args:
        args: fairseq's object with the arguments of the model.
        group: of fairseq's settings, e.g. "task".
        name: of the setting.

    Returns:
        None where it is not set.
    """
    if isinstance(args, DictConfig):
        # omegaconf has no public way from a node to its root. Should this one vanish, take the
        # settings where fairseq hands them over: from the task's `cfg` and the trainer.
        return OmegaConf.select(args._get_root(), f"{group}.{name}")
    return getattr(args, name, None)
