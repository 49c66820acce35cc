"""Checks that need only the arguments; each error is one line."""

import difflib
import importlib.util
from argparse import Namespace
from collections.abc import Collection, Iterable
from typing import Any

import torch

from ...base.errors import ConfigurationError
from ...position import known_options
from .declaration import ModelArguments


def check_keys(keys: Iterable[Any], known: Collection[str], model: str) -> None:
    """Check hydra's keys; on the command line, argparse has done so already.

    Raises:
        ConfigurationError: one is unknown.
    """
    for key in map(str, keys):
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
        value = getattr(args, name, None)
        if value and value != -1:
            flag = "--" + name.replace("_", "-")
            raise ConfigurationError(
                f"{flag} is {value!r}, but {model.name} does not support it: {way_out}."
            )
    options = model.options_with(args.position_encoding)
    for option in options:
        option.check(getattr(args, option.name))
    names = {option.name for option in options}
    for option in known_options().values():
        value = getattr(args, option.name, None)
        if option.name not in names and value not in (None, option.default):
            raise ConfigurationError(
                f"{option.flag} is {value!r}, but --position-encoding {args.position_encoding} "
                "does not take it."
            )
    for side in ("encoder", "decoder"):
        _check_kept_layers(args, side)


def check_tpu(wanted: bool | None) -> None:
    """Check the wish for a TPU, which fairseq-train takes from --bf16.

    Raises:
        ConfigurationError: there is no library for TPUs.
    """
    if wanted and importlib.util.find_spec("torch_xla") is None:
        raise ConfigurationError(
            "fairseq-train trains on a TPU with --bf16, but torch_xla is not installed: on a GPU, "
            "use fairseq-hydra-train with common.bf16=true, or --fp16 or --amp."
        )


def scalar_noise_without_gpu(noise: float | None) -> str | None:
    """Why a model with this value of --quant-noise-scalar cannot run here, or None if it can."""
    if not noise or torch.cuda.is_available():
        return None
    return (
        f"--quant-noise-scalar is {noise}, but fairseq's scalar quantization needs a GPU: remove "
        "the flag, or use --quant-noise-pq."
    )


def _check_kept_layers(args: Namespace, side: str) -> None:
    """Check that pruning keeps what each layer computes.

    Raises:
        ConfigurationError: the new index of a layer would change its attention.
    """
    value = getattr(args, f"{side}_layers_to_keep", None)
    if not value:
        return
    try:
        # fairseq keeps the layers in their order and counts them anew.
        kept = sorted(int(index) for index in str(value).strip("[]").split(","))
    except ValueError:
        raise ConfigurationError(
            f"--{side}-layers-to-keep must be numbers of layers such as 0,2,4, but is {value}."
        ) from None
    skip = getattr(args, "rope_skip_every", 0) or 0
    # N, and the index of the first layer that the flag selects; then each N-th.
    selections = (("--global-every", args.global_every, 0), ("--rope-skip-every", skip, skip - 1))
    for flag, every, first in selections:
        if every and any(
            (old % every == first) != (new % every == first) for new, old in enumerate(kept)
        ):
            raise ConfigurationError(
                f"--{side}-layers-to-keep is {value}, but with {flag} {every} a layer would "
                "change: the kept layers are renumbered. Choose layers that the flag selects "
                "both before and after renumbering, or neither."
            )
