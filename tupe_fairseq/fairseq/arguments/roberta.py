"""The arguments of `tupe_roberta`."""

from argparse import Namespace
from typing import Any

from fairseq.models.roberta import RobertaModel
from fairseq.models.roberta.model import base_architecture

from ...base.errors import ConfigurationError
from ...base.options import declared_options
from .architectures import ROBERTA_ARCHITECTURES
from .declaration import ModelArguments, RobertaArguments
from .training import TrainingSettings

UNSUPPORTED = {
    "mha_heads_to_keep": "all layers share the positional terms of a head, and AdaPrune removes "
    "different heads in each layer; remove the flag",
    "ffn_blocks_to_remove": "AdaPrune is not supported; remove the flag",
}


def _finish(args: Namespace, training: TrainingSettings, task: Any) -> dict[str, Any]:
    """The lengths, checked against the task's."""
    values = {}
    tokens = training.tokens_per_sample
    longest = getattr(args, "max_positions", None)
    if longest is None:
        # The masked_lm task of fairseq 0.12.2 does not have its length as max_positions().
        longest = getattr(args, "tokens_per_sample", None) or tokens or task.max_positions()
        values["tokens_per_sample"] = longest
    sentences_alone = str(training.sample_break_mode) == "eos"
    # fairseq would skip longer blocks, and report an empty dataset if nothing is left.
    if tokens is not None and tokens > longest and not sentences_alone:
        raise ConfigurationError(
            f"--tokens-per-sample is {tokens} tokens, but --max-positions is {longest}: make them "
            "equal."
        )
    return {**values, "max_positions": longest, "max_source_positions": longest}


ROBERTA = ModelArguments(
    name="tupe_roberta",
    architectures=ROBERTA_ARCHITECTURES,
    stock_base=base_architecture,
    stock_flags=RobertaModel.add_args,
    unsupported=UNSUPPORTED,
    lengths=("max_positions",),
    finish=_finish,
    further=declared_options(RobertaArguments),
)
