"""The position encoding of a configuration, and its values after loading or resizing."""

from collections.abc import Callable

import torch
from torch import nn

from ..base.errors import ConfigurationError
from ..position.base import POSITION_ENCODINGS, PositionEncoding, build_position_encoding
from ..position.deleted import refuse_deleted
from ..position.model_options import model_options
from ..transformer.stack import TransformerStack
from .configuration import TupeConfig

#: The option that records the trained length.
TRAINED = "trained_positions"


def build_positions(config: TupeConfig) -> PositionEncoding:
    """The encoding that a configuration names, with its initial values.

    It is built on the CPU even where transformers builds models without values: encodings
    compute constants when they are built.

    Raises:
        ConfigurationError: unknown encoding, unknown option, an option outside of
            position_options, or an invalid value.
    """
    name = config.position_encoding
    known = POSITION_ENCODINGS[name].defaults()
    refuse_deleted(config.position_options, known)
    if unknown := sorted(config.position_options.keys() - known.keys()):
        raise ConfigurationError(
            f"position_options has {', '.join(map(repr, unknown))}, but the options of {name} "
            f"are: {', '.join(sorted(known)) or 'none'}."
        )
    if misplaced := sorted(vars(config).keys() & known.keys()):
        raise ConfigurationError(
            f"the configuration has {', '.join(misplaced)}, but options of {name} have no effect "
            "there: give them in position_options."
        )
    lacks_length = TRAINED in known and not config.position_options.get(TRAINED)
    if lacks_length and config.extend_positions == "toeplitz":
        raise ConfigurationError(
            f"extend_positions is 'toeplitz', but position_options has no {TRAINED}: give the "
            "max_position_embeddings with which the model was trained."
        )
    with torch.device("cpu"):
        return build_position_encoding(
            name,
            config.hidden_size,
            config.num_attention_heads,
            config.max_position_embeddings,
            vocab_size=config.vocab_size,
            num_layers=config.num_hidden_layers,
            **{option.name: getattr(config, option.name) for option in model_options()},
            **config.position_options,
        )


@torch.no_grad()
def restore(
    encoder: TransformerStack, config: TupeConfig, initialise: Callable[[nn.Module], None]
) -> None:
    """Give constants their values, and new parameters of positions their initial values.

    transformers 5 loads models without the values of what is not in the file, and its own
    initialisation does not know an encoding's. Loaded parameters are left as they are.
    `initialise` is the initialisation of linear layers and embeddings, as fairseq applies it.
    """
    fresh = build_positions(config)
    _complete(encoder.embed_positions, fresh.apply(initialise))
    for index, terms in enumerate(encoder.layers.terms()):
        with torch.device("cpu"):
            fresh_terms = fresh.at(index).build_layer_terms()
        if terms is not None and fresh_terms is not None:
            _complete(terms, fresh_terms.apply(initialise))


def _complete(target: nn.Module, fresh: nn.Module) -> None:
    """Copy constants, and parameters that were not loaded."""
    for name, value in fresh.named_buffers():
        target.get_buffer(name).copy_(value)
    for name, value in fresh.named_parameters():
        parameter = target.get_parameter(name)
        if not getattr(parameter, "_is_hf_initialized", False):
            parameter.copy_(value)


@torch.no_grad()
def resized(encoder: TransformerStack, config: TupeConfig) -> PositionEncoding:
    """The encoding of an encoder for another size of the vocabulary.

    Rows of tokens that are not new are copied, those of new tokens have their initial values.
    Device and dtype are those of the encoder, and frozen parameters stay frozen.
    """
    old = encoder.embed_positions
    # The encoder's first parameters are the encoding's, if it has any.
    new = build_positions(config).train(old.training).to(next(encoder.parameters()))
    for name, value in new.named_parameters():
        kept = old.get_parameter(name)
        same = kept.shape == value.shape
        rows = ... if same else slice(min(len(kept), len(value)))
        value[rows].copy_(kept[rows])
        value.requires_grad_(kept.requires_grad)
    return new
