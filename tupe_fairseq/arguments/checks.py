"""Checks of arguments that need nothing but the arguments; each error is one line."""

import difflib
from argparse import Namespace
from collections.abc import Collection, Iterable
from typing import Any

import torch

from ..errors import ConfigurationError
from ..options import Option
from ..position import POSITION_ENCODINGS, known_options
from .declaration import ModelArguments

#: Types of options, in words.
TYPES = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}


def check_keys(given: Iterable[Any], known: Collection[str], model: str) -> None:
    """Check hydra's keys; on the command line, argparse has done so already.

    Raises:
        ConfigurationError: one is unknown.
    """
    for key in map(str, given):
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean model.{close[0]}?" if close else "."
            raise ConfigurationError(f"model.{key} is not an argument of {model}{hint}")


def check_arguments(model: ModelArguments, args: Namespace) -> None:
    """Check what no single encoding or layer checks when it is built.

    Raises:
        ConfigurationError: a flag is not supported by the model, has no effect with the encoding,
            or has a value of another type.
    """
    for name, way_out in model.unsupported.items():
        # -1 is fairseq's value of --mha-heads-to-keep for all.
        if (value := getattr(args, name, None)) and value != -1:
            flag = "--" + name.replace("_", "-")
            raise ConfigurationError(
                f"{flag} is {value!r}, but {model.name} does not support it: {way_out}."
            )
    for option in model.options():
        _check_type(option, getattr(args, option.name))
    _check_options(args)
    for side in ("encoder", "decoder"):
        _check_kept_layers(args, side)


def scalar_noise_without_gpu(noise: float | None) -> str | None:
    """Why a model with this value of --quant-noise-scalar cannot run here, or None if it can."""
    if not noise or torch.cuda.is_available():
        return None
    return (
        f"--quant-noise-scalar is {noise}, but fairseq's scalar quantization needs a GPU: remove "
        "the flag, or use --quant-noise-pq."
    )


def _check_options(args: Namespace) -> None:
    """Check the options of encodings that are set."""
    chosen = args.position_encoding
    own = POSITION_ENCODINGS[chosen].defaults()
    for option in known_options().values():
        given = getattr(args, option.name, option.default)
        if option.name not in own and given not in (None, option.default):
            raise ConfigurationError(
                f"{option.flag} is {given!r}, but --position-encoding {chosen} does not take it."
            )
        # In Python, these may be a mapping.
        if option.name in own and option.name != "rope_scaling_settings":
            _check_type(option, given)


def _check_type(option: Option, value: Any) -> None:
    """Check the type of a value: hydra reads `no`, for instance, as a string, which is true."""
    # An int is a float, too; a bool is an int only to Python.
    accepted = (int, float) if option.type is float else option.type
    right = isinstance(value, accepted) and (option.type is bool or not isinstance(value, bool))
    if option.type in TYPES and value is not None and not right:
        raise ConfigurationError(f"{option.flag} must be {TYPES[option.type]}, but is {value!r}.")


def _check_kept_layers(args: Namespace, side: str) -> None:
    """Check that pruning keeps what each layer computes.

    Raises:
        ConfigurationError: the new index of a layer would change its attention.
    """
    if not (given := getattr(args, f"{side}_layers_to_keep", None)):
        return
    try:
        # fairseq keeps the layers in their order and counts them anew.
        kept = sorted(int(index) for index in str(given).strip("[]").split(","))
    except ValueError:
        raise ConfigurationError(
            f"--{side}-layers-to-keep must be numbers of layers such as 0,2,4, but is {given}."
        ) from None
    skip = getattr(args, "rope_skip_every", 0) or 0
    # N, and the index of the first layer that the flag selects; then each N-th.
    selections = (("--global-every", args.global_every, 0), ("--rope-skip-every", skip, skip - 1))
    for flag, every, first in selections:
        if every and any(
            (old % every == first) != (new % every == first) for new, old in enumerate(kept)
        ):
            raise ConfigurationError(
                f"--{side}-layers-to-keep is {given}, but with {flag} {every} a layer would "
                "change: the kept layers are renumbered. Choose layers that the flag selects "
                "both before and after renumbering, or neither."
            )
