"""What each model takes as arguments.

Flags of single models are declared here, those of every encoding by `ModelOptions`, and others by
`LayerOptions` and by encodings. `ModelArguments.add_flags` adds all of them to a parser.
"""

import argparse
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from ...attention import ATTENTION_BACKENDS
from ...base.errors import ConfigurationError
from ...base.options import Mark, Option, declared_options
from ...position import POSITION_ENCODINGS, known_options, model_options
from ...position.deleted import OPTIONS, deleted_option
from ...transformer.layer_options import LayerOptions
from .. import commands
from .training import TrainingSettings


@dataclass(frozen=True, kw_only=True)
class CommonArguments:
    """What every model adds to fairseq's arguments, besides the options of encodings."""

    position_encoding: Annotated[
        str, f"position encoding, one of: {', '.join(POSITION_ENCODINGS)}", Mark.FIXED
    ] = "tupe_r"
    attention_backend: Annotated[
        str, f"how attention is computed: {', '.join(ATTENTION_BACKENDS.names())}", Mark.FREE
    ] = "auto"


@dataclass(frozen=True, kw_only=True)
class RobertaArguments:
    """What `tupe_roberta` alone adds."""

    compile_layers: Annotated[
        bool | None,
        "run the layers through torch.compile, which needs a C++ compiler; by default in training "
        "on GPUs, where it works",
        Mark.FREE,
    ] = None
    checkpoint_activations: Annotated[
        bool,
        "recompute layers in the backward pass instead of storing their activations",
        Mark.FREE,
    ] = False
    layer_norm_eps: Annotated[float, "epsilon of LayerNorms, added to the variance"] = 1e-5
    type_vocab_size: Annotated[
        int,
        "number of token types, each with an embedding: 2 for BERT, whose tokens after the first "
        "</s> of a sequence have type 1, in blocks of several lines too",
    ] = 0


@dataclass(frozen=True)
class ModelArguments:
    """The arguments of one model.

    Attributes:
        name: of the model, and of its default architecture.
        architectures: for each architecture, where it differs from `stock_base`.
        stock_base: fairseq's function that sets missing arguments, in place.
        stock_flags: fairseq's function that adds its flags to a parser.
        unsupported: flags that the model does not support, and what to do instead.
        lengths: the arguments that limit the length of sequences.
        finish: checks what depends on the settings of the training and on the task: gets the
            arguments, those settings and the task; returns the values that follow from them.
        further: options that no other model has.
        option_defaults: options of encodings whose default differs from the encoding's own.
    """

    name: str
    architectures: Mapping[str, Mapping[str, Any]]
    stock_base: Callable[[Namespace], None]
    stock_flags: Callable[[Any], None]
    unsupported: Mapping[str, str]
    lengths: tuple[str, ...]
    finish: Callable[[Namespace, TrainingSettings, Any], dict[str, Any]]
    further: tuple[Option, ...] = ()
    option_defaults: Mapping[str, Any] = field(default_factory=dict)

    def options(self) -> tuple[Option, ...]:
        """What the model adds to fairseq's arguments, without the options of single encodings."""
        common = declared_options(CommonArguments)
        layer = declared_options(LayerOptions)
        return (*common, *model_options(), *layer, *self.further)

    def options_with(self, position_encoding: str) -> tuple[Option, ...]:
        """All options of the model with this encoding, whose defaults may be the model's."""
        encoding = POSITION_ENCODINGS[position_encoding]
        defaults = {**encoding.defaults(), **self.option_defaults}
        return (
            *self.options(),
            *(each._replace(default=defaults[each.name]) for each in encoding.options()),
        )

    def add_flags(self, parser: Any) -> None:
        """Add fairseq's flags and ours, without defaults: architectures set them."""
        self.stock_flags(parser)
        options = (*self.options(), *known_options().values())
        for option in options:
            boolean = {"action": argparse.BooleanOptionalAction}
            kind = boolean if option.type is bool else {"type": option.type}
            try:
                parser.add_argument(option.flag, help=option.help, **kind)
            except argparse.ArgumentError as error:
                raise ConfigurationError(
                    f"{option.flag} is a flag already: give this option of an encoding another "
                    "name."
                ) from error
        # For older command lines.
        for name in OPTIONS.keys() - {option.name for option in options}:
            flag = "--" + name.replace("_", "-")
            parser.add_argument(
                flag, action=DeletedFlag, default=argparse.SUPPRESS, help=argparse.SUPPRESS
            )


class DeletedFlag(argparse.Action):
    """A flag that version 0.3.0 was the last to have."""

    @commands.ends_commands_in_one_line
    def __call__(
        self, parser: Any, namespace: Any, values: Any, option: str | None = None
    ) -> None:
        raise deleted_option(str(option), values)
