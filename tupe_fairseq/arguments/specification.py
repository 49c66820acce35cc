"""What each model takes as arguments, and the one way in which they are completed."""

import argparse
import difflib
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fairseq.models import register_model_architecture
from omegaconf import DictConfig, open_dict

from ..errors import ConfigurationError
from .architectures import TUPE_DEFAULTS
from .flags import add_position_args, complete_position_options, record_lengths


@dataclass(frozen=True)
class ModelArguments:
    """The arguments of one model.

    Attributes:
        name: of the model, and of its default architecture.
        architectures: for each architecture, where it differs from `stock_base`.
        stock_base: fairseq's function that sets what is not set.
        stock_flags: fairseq's function that adds its flags to a parser.
        finish: completes and checks what depends on fairseq's settings and on the task: gets the
            arguments (in place), fairseq's object, and the task.
        lengths: the arguments that limit the length of sequences.
        more_flags: adds flags that only this model has.
        option_defaults: options of encodings whose default differs from the encoding's own.
        more_keys: keys of hydra that neither a flag nor a default declares.
    """

    name: str
    architectures: Mapping[str, Mapping[str, Any]]
    stock_base: Callable[[Namespace], None]
    stock_flags: Callable[[Any], None]
    finish: Callable[[Namespace, Any, Any], None]
    lengths: tuple[str, ...]
    more_flags: Callable[[Any], None] = lambda parser: None
    option_defaults: Mapping[str, Any] = field(default_factory=dict)
    more_keys: frozenset[str] = frozenset()

    def add_flags(self, parser: Any) -> None:
        """Add stock fairseq's flags and ours."""
        self.stock_flags(parser)
        add_position_args(parser)
        self.more_flags(parser)

    def keys(self) -> set[str]:
        """All names that the model's arguments can have."""
        parser = argparse.ArgumentParser()
        self.add_flags(parser)
        flags = vars(parser.parse_args([]))
        defaults = vars(with_architecture(self, self.name, Namespace()))
        return {*flags, *defaults, *self.more_keys, "_name", "arch"}


def completed(spec: ModelArguments, args: Any, task: Any) -> Namespace:
    """Check and complete the arguments of a model; ``args`` stays as it is.

    Args:
        spec: of the model.
        args: a Namespace (command line) or DictConfig (hydra).
        task: fairseq's task.

    Raises:
        ConfigurationError: an argument is unknown, invalid, or not available in this model.
    """
    if isinstance(args, DictConfig):
        _check_keys(spec, args)
    complete = with_architecture(spec, spec.name, args)
    complete_position_options(complete, spec.option_defaults)
    spec.finish(complete, args, task)
    record_lengths(complete, spec.lengths)
    return complete


def with_architecture(spec: ModelArguments, name: str, args: Any) -> Namespace:
    """A copy of arguments in which the values of an architecture fill what is not set."""
    complete = _flat(args)
    for name_of_argument, value in {**TUPE_DEFAULTS, **spec.architectures[name]}.items():
        if not hasattr(complete, name_of_argument):
            setattr(complete, name_of_argument, value)
    spec.stock_base(complete)
    return complete


def write_back(args: Any, complete: Namespace) -> None:
    """Enter complete arguments in fairseq's object, in place.

    fairseq saves that object in checkpoints, and its trainer reads it. This is the only place in
    which the package changes it.
    """
    if not isinstance(args, DictConfig):
        vars(args).update(vars(complete))
        return
    with open_dict(args):
        for name, value in vars(complete).items():
            # What is equal stays: it may be an interpolation.
            if name not in args or args[name] != value:
                args[name] = value


def register_architectures(spec: ModelArguments) -> None:
    """Enter a model's architectures with fairseq; the model itself must be registered before."""
    for name in spec.architectures:
        register_model_architecture(spec.name, name)(
            # fairseq calls it with its own object, to be completed in place.
            lambda args, name=name: write_back(args, with_architecture(spec, name, args))
        )


def _flat(args: Any) -> Namespace:
    """A copy; hydra's None stands for a value that is not set."""
    if isinstance(args, DictConfig):
        return Namespace(**{str(key): args[key] for key in args if args[key] is not None})
    return Namespace(**vars(args))


def _check_keys(spec: ModelArguments, args: DictConfig) -> None:
    """Raise an error for unknown keys; on the command line, argparse has done so already."""
    known = spec.keys()
    for key in map(str, args):
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean model.{close[0]}?" if close else "."
            raise ConfigurationError(
                f"model.{key} is not an argument of {args.get('_name')}{hint}"
            )
