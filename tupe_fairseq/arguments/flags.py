"""Arguments of the models: flags on the command line, keys under hydra, one set of checks."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fairseq.utils import safe_getattr, safe_hasattr
from omegaconf import DictConfig, OmegaConf

from ..attention import ATTENTION_BACKENDS
from ..errors import UsageError
from ..position import POSITION_ENCODINGS, Option, known_options

#: What --extend-positions takes.
EXTENSIONS = ("hierarchical",)


def add_position_args(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the encodings and of attention that all models have."""
    parser.add_argument(
        "--position-encoding",
        metavar="NAME",
        help=f"how positions enter the model: {', '.join(POSITION_ENCODINGS)} (default: tupe_r)",
    )
    parser.add_argument(
        "--attention-backend",
        metavar="NAME",
        help=f"how attention is computed: {', '.join(ATTENTION_BACKENDS.names())} (default: auto)",
    )
    parser.add_argument(
        "--extend-positions",
        choices=EXTENSIONS,
        help="how a checkpoint with fewer positions than --max-positions is continued: by "
        "hierarchical decomposition of its positions (default: it is refused)",
    )
    for option in known_options().values():
        boolean = {"action": argparse.BooleanOptionalAction}
        kind = boolean if option.type is bool else {"type": option.type}
        parser.add_argument(option.flag, help=f"{option.help} ({_defaults(option)})", **kind)


def _defaults(option: Option) -> str:
    """Which encodings take an option, and what it is for each if not given."""
    return ", ".join(
        f"{name}: {own.default}"
        for name, cls in POSITION_ENCODINGS.items()
        for own in cls.options()
        if own.name == option.name
    )


def position_options(args: Any, defaults: Mapping[str, Any] = MappingProxyType({})) -> dict:
    """The options of the chosen encoding, defaults filled in and written back to ``args``.

    Args:
        args: arguments of the model.
        defaults: where the model's own differ from the encoding's.

    Raises:
        UsageError: an option of another encoding is set, which would be ignored.
    """
    name = args.position_encoding
    if args.extend_positions not in (None, *EXTENSIONS):
        raise UsageError(
            f"--extend-positions is {args.extend_positions!r}, but must be one of: "
            f"{', '.join(EXTENSIONS)}."
        )
    own = {option.name: option for option in POSITION_ENCODINGS[name].options()}
    for option in known_options().values():
        given = safe_getattr(args, option.name, option.default)
        if option.name not in own and given not in (None, option.default):
            raise UsageError(
                f"{option.flag} is {given!r}, but --position-encoding {name} does not take it."
            )
    for option in own.values():
        if not safe_hasattr(args, option.name):
            setattr(args, option.name, defaults.get(option.name, option.default))
    return {name: getattr(args, name) for name in own}


def check_keys(args: Any, model_cls: type, known: set[str]) -> None:
    """Refuse keys of a hydra configuration that no model argument has, lest typos be ignored.

    On the command line argparse has done so already.
    """
    if not isinstance(args, DictConfig):
        return
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
    model_cls.add_args(parser)
    known = known | {action.dest for action in parser._actions} | {"_name", "arch"}
    for key in args:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean model.{close[0]}?" if close else "."
            raise UsageError(f"model.{key} is not an argument of {args.get('_name')}{hint}")


def training_setting(args: Any, group: str, name: str) -> Any:
    """A setting outside the model's own, from a flat Namespace or from hydra's whole tree."""
    if isinstance(args, DictConfig):
        return OmegaConf.select(args._get_root(), f"{group}.{name}")
    return safe_getattr(args, name, None)


def check_pruning(args: Any) -> None:
    """Refuse AdaPrune's removal of heads and feed-forward units when a checkpoint is loaded.

    Raises:
        UsageError: it is asked for. A head has positions of its own, shared by all layers, while
            AdaPrune keeps other heads in every layer.
    """
    for name in ("mha_heads_to_keep", "ffn_blocks_to_remove"):
        if (number := safe_getattr(args, name, -1)) != -1:
            flag = "--" + name.replace("_", "-")
            raise UsageError(f"{flag} is {number}, but tupe_roberta cannot prune; leave it out.")


def check_lengths(args: Any) -> None:
    """Refuse blocks of text longer than the model's positions.

    fairseq would leave them out, and where nothing is left speak of an empty dataset.

    Raises:
        UsageError: --tokens-per-sample exceeds --max-positions.
    """
    tokens = training_setting(args, "task", "tokens_per_sample")
    sentences_alone = str(training_setting(args, "task", "sample_break_mode")) == "eos"
    if tokens is not None and tokens > args.max_positions and not sentences_alone:
        raise UsageError(
            f"--tokens-per-sample is {tokens} tokens, but --max-positions is {args.max_positions}:"
            " make them equal."
        )
