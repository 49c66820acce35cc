"""The arguments of `tupe_roberta`."""

from argparse import Namespace
from typing import Any

from fairseq.models.roberta import RobertaModel
from fairseq.models.roberta.model import base_architecture

from ..errors import ConfigurationError
from .architectures import ROBERTA_ARCHITECTURES
from .declaration import ModelArguments, RobertaArguments
from .fairseq_settings import training_setting

UNSUPPORTED = {
    "mha_heads_to_keep": "all layers share the positional terms of a head, and AdaPrune removes "
    "different heads in each layer; remove the flag",
}


def _finish(args: Namespace, given: Any, task: Any) -> dict[str, Any]:
    """The lengths, checked against the task's."""
    _check_units(args)
    found = {}
    tokens = training_setting(given, "task", "tokens_per_sample")
    if (longest := getattr(args, "max_positions", None)) is None:
        # The masked_lm task of fairseq 0.12.2 does not have its length as max_positions().
        longest = getattr(args, "tokens_per_sample", None) or tokens or task.max_positions()
        found["tokens_per_sample"] = longest
    sentences_alone = str(training_setting(given, "task", "sample_break_mode")) == "eos"
    # fairseq would skip longer blocks, and report an empty dataset if nothing is left.
    if tokens is not None and tokens > longest and not sentences_alone:
        raise ConfigurationError(
            f"--tokens-per-sample is {tokens} tokens, but --max-positions is {longest}: make them "
            "equal."
        )
    return {**found, "max_positions": longest, "max_source_positions": longest}


def _check_units(args: Namespace) -> None:
    """Check that AdaPrune leaves feed-forward units.

    Raises:
        ConfigurationError: none would be left, or none be removed.
    """
    units, width = getattr(args, "ffn_blocks_to_remove", -1), args.encoder_ffn_embed_dim
    if units != -1 and not 0 < units < width:
        raise ConfigurationError(
            f"--ffn-blocks-to-remove is {units}, but each layer has {width} units: give a number "
            f"from 1 to {width - 1}, or -1 to remove none."
        )


ROBERTA = ModelArguments(
    name="tupe_roberta",
    architectures=ROBERTA_ARCHITECTURES,
    stock_base=base_architecture,
    stock_flags=RobertaModel.add_args,
    unsupported=UNSUPPORTED,
    lengths=("max_positions",),
    finish=_finish,
    own=RobertaArguments,
    more_keys=frozenset({"tokens_per_sample", "max_positions"}),
)
