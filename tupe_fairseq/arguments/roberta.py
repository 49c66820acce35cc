"""The arguments of `tupe_roberta`."""

from argparse import Namespace
from typing import Any

from fairseq.models.roberta import RobertaModel
from fairseq.models.roberta.model import base_architecture

from ..errors import ConfigurationError
from .architectures import ROBERTA_ARCHITECTURES
from .flags import training_setting
from .specification import ModelArguments


def _add_flags(parser: Any) -> None:
    parser.add_argument(
        "--compile-layers",
        action="store_true",
        help="run the layers through torch.compile, which needs a C++ compiler",
    )
    parser.add_argument(
        "--checkpoint-activations",
        action="store_true",
        help="recompute layers in the backward pass instead of storing their activations",
    )


def _finish(complete: Namespace, args: Any, task: Any) -> None:
    _check_pruning(complete)
    if not hasattr(complete, "max_positions"):
        if not hasattr(complete, "tokens_per_sample"):
            # The masked_lm task of fairseq 0.12.2 does not have it as max_positions().
            given = training_setting(args, "task", "tokens_per_sample")
            complete.tokens_per_sample = given or task.max_positions()
        complete.max_positions = complete.tokens_per_sample
    # fairseq sets it from max_positions, but before that is known.
    complete.max_source_positions = complete.max_positions
    _check_lengths(complete, args)


def _check_pruning(complete: Namespace) -> None:
    """AdaPrune removes feed-forward units, but not heads.

    Raises:
        ConfigurationError: heads are to be removed, or more units than there are.
    """
    if (heads := getattr(complete, "mha_heads_to_keep", -1)) != -1:
        raise ConfigurationError(
            f"--mha-heads-to-keep is {heads}, but heads of tupe_roberta cannot be pruned: all "
            "layers share the positional terms of a head, and AdaPrune removes different heads "
            "in each layer. Remove the flag."
        )
    units, width = getattr(complete, "ffn_blocks_to_remove", -1), complete.encoder_ffn_embed_dim
    if units != -1 and not 0 < units < width:
        raise ConfigurationError(
            f"--ffn-blocks-to-remove is {units}, but each layer has {width} units: give a number "
            f"from 1 to {width - 1}, or -1 to remove none."
        )


def _check_lengths(complete: Namespace, args: Any) -> None:
    """Check that blocks of text fit the model's positions.

    fairseq would skip longer blocks, and report an empty dataset if nothing is left.

    Raises:
        ConfigurationError: --tokens-per-sample exceeds --max-positions.
    """
    tokens = training_setting(args, "task", "tokens_per_sample")
    sentences_alone = str(training_setting(args, "task", "sample_break_mode")) == "eos"
    if tokens is not None and tokens > complete.max_positions and not sentences_alone:
        raise ConfigurationError(
            f"--tokens-per-sample is {tokens} tokens, but --max-positions is "
            f"{complete.max_positions}: make them equal."
        )


ROBERTA = ModelArguments(
    name="tupe_roberta",
    architectures=ROBERTA_ARCHITECTURES,
    stock_base=base_architecture,
    stock_flags=RobertaModel.add_args,
    more_flags=_add_flags,
    finish=_finish,
    lengths=("max_positions",),
    more_keys=frozenset({"tokens_per_sample", "max_positions"}),
)
