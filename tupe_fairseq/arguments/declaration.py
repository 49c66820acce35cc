"""What each model takes as arguments: the one place where our flags are declared."""

import argparse
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from omegaconf import DictConfig, OmegaConf

from ..attention import ATTENTION_BACKENDS
from ..options import Option, options_of
from ..position import POSITION_ENCODINGS, known_options


@dataclass(frozen=True, kw_only=True)
class CommonArguments:
    """What every model adds to fairseq's arguments, besides the options of encodings.

    Fields are annotated like options of encodings, and become flags and keys of hydra.
    """

    position_encoding: Annotated[
        str, f"position encoding, one of: {', '.join(POSITION_ENCODINGS)}"
    ] = "tupe_r"
    attention_backend: Annotated[
        str, f"how attention is computed: {', '.join(ATTENTION_BACKENDS.names())}"
    ] = "auto"
    attention_window: Annotated[
        int | None,
        "tokens attend to each other up to this distance only; an untied [CLS] sees all tokens "
        "and is seen by all",
    ] = None
    global_every: Annotated[
        int, "layers 0, N, 2N, ... have no --attention-window; 0: all layers have it"
    ] = 0
    extend_positions: Annotated[
        str | None,
        "how a checkpoint with fewer positions than --max-positions is extended: `hierarchical` "
        "makes its position table longer, `toeplitz` continues TUPE's term by distance",
    ] = None


@dataclass(frozen=True, kw_only=True)
class DecoderArguments(CommonArguments):
    """What `tupe_transformer` and `tupe_transformer_lm` add to fairseq's."""

    log_scaling_floor: Annotated[
        int | None,
        "in decoder layers without a window, scores of the i-th token are multiplied by "
        "1 + alpha ln(i / N) from the N-th token on",
    ] = None
    log_scaling_alpha: Annotated[float, "alpha of --log-scaling-floor"] = 0.1


@dataclass(frozen=True, kw_only=True)
class RobertaArguments(CommonArguments):
    """What `tupe_roberta` adds to fairseq's."""

    compile_layers: Annotated[
        bool, "run the layers through torch.compile, which needs a C++ compiler"
    ] = False
    checkpoint_activations: Annotated[
        bool, "recompute layers in the backward pass instead of storing their activations"
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
        finish: checks what depends on fairseq's settings and on the task: gets the arguments,
            fairseq's object, and the task; returns the values that follow from them.
        own: what the model adds to fairseq's arguments.
        option_defaults: options of encodings whose default differs from the encoding's own.
    """

    name: str
    architectures: Mapping[str, Mapping[str, Any]]
    stock_base: Callable[[Namespace], None]
    stock_flags: Callable[[Any], None]
    unsupported: Mapping[str, str]
    lengths: tuple[str, ...]
    finish: Callable[[Namespace, Any, Any], dict[str, Any]]
    own: type[CommonArguments] = CommonArguments
    option_defaults: Mapping[str, Any] = field(default_factory=dict)

    def options(self) -> tuple[Option, ...]:
        """What the model adds to fairseq's arguments, without the options of encodings."""
        return options_of(self.own)

    def add_flags(self, parser: Any) -> None:
        """Add fairseq's flags and ours, without defaults: architectures set them."""
        self.stock_flags(parser)
        for option in (*self.options(), *known_options().values()):
            boolean = {"action": argparse.BooleanOptionalAction}
            kind = boolean if option.type is bool else {"type": option.type}
            parser.add_argument(option.flag, help=option.help, **kind)


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
