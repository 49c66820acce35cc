"""Completion of arguments; the only place that changes fairseq's object."""

import argparse
from argparse import Namespace
from typing import Any

from fairseq.models import register_model_architecture
from fairseq.models.transformer import DEFAULT_MIN_PARAMS_TO_WRAP
from omegaconf import DictConfig, open_dict

from ...position import POSITION_ENCODINGS, known_options
from ...position.deleted import refuse_deleted, without_deleted
from .checks import check_arguments, check_keys
from .declaration import ModelArguments
from .training import TrainingSettings

#: What models read that neither their flags nor fairseq's functions set in every case.
MORE_DEFAULTS: dict[str, Any] = {
    "compile_layers": False,
    # The hub interface can set only what is recorded.
    "load_checkpoint_heads": False,
    "type_vocab_size": 0,
    # argparse sets it on the command line; hydra has no such default.
    "min_params_to_wrap": DEFAULT_MIN_PARAMS_TO_WRAP,
    # fairseq's trainer compares it with 0. Under hydra 1.0 it reads None where this is missing.
    "base_layers": 0,
}
#: Keys of hydra that neither a flag nor a default declares.
MORE_KEYS = {
    "_name",
    "arch",
    "tokens_per_sample",
    "max_positions",
    "max_target_positions",
    "add_bos_token",
    "source_lang",
    "target_lang",
}


def completed(
    model: ModelArguments, args: Any, training: TrainingSettings, task: Any
) -> Namespace:
    """Check and complete the arguments of a model.

    Args:
        model: what they are the arguments of.
        args: a Namespace (command line) or DictConfig (hydra), which stays as it is.
        training: the settings of the training.
        task: fairseq's.

    Raises:
        ConfigurationError: an argument is unknown, invalid, or not available in this model.
    """
    values = without_deleted(_values_of(args))
    refuse_deleted(values, {*known_options(), *(option.name for option in model.options())})
    if isinstance(args, DictConfig):
        check_keys(values, known_keys(model), str(args.get("_name")))
    complete = with_architecture(model, model.name, args)
    for option in model.options_with(complete.position_encoding):
        vars(complete).setdefault(option.name, option.default)
    check_arguments(model, complete)
    vars(complete).update(model.finish(complete, training, task))
    longest = {getattr(complete, name) for name in model.lengths}
    if len(longest) == 1:
        # Options that follow from the length; from two lengths, nothing follows.
        encoding = POSITION_ENCODINGS[complete.position_encoding]
        vars(complete).update(encoding.recorded(position_options(complete), *longest))
    return complete


def with_architecture(model: ModelArguments, name: str, args: Any) -> Namespace:
    """A copy of arguments in which the values of an architecture fill what is not set."""
    defaults = {option.name: option.default for option in model.options()}
    preset = model.architectures[name]
    complete = Namespace(**{**MORE_DEFAULTS, **defaults, **preset, **_values_of(args)})
    model.stock_base(complete)
    return complete


def known_keys(model: ModelArguments) -> set[str]:
    """All names that the model's arguments can have."""
    parser = argparse.ArgumentParser()
    model.add_flags(parser)
    flags = vars(parser.parse_args([]))
    defaults = vars(with_architecture(model, model.name, Namespace()))
    return {*flags, *defaults, *MORE_KEYS}


def position_options(complete: Any) -> dict[str, Any]:
    """The options of the chosen encoding, from complete arguments."""
    names = POSITION_ENCODINGS[complete.position_encoding].defaults()
    return {name: getattr(complete, name) for name in names}


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


def register_architectures(model: ModelArguments) -> None:
    """Register a model's architectures with fairseq, in which the model is registered already."""
    for name in model.architectures:
        register_model_architecture(model.name, name)(
            # fairseq calls it with its own object, to be completed in place.
            lambda args, name=name: write_back(args, with_architecture(model, name, args))
        )


def _values_of(args: Any) -> dict[str, Any]:
    """The values that are set; hydra's None stands for one that is not."""
    if isinstance(args, DictConfig):
        return {str(key): args[key] for key in args if args[key] is not None}
    return dict(vars(args))
