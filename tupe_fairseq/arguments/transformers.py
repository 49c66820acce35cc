"""The arguments of `tupe_transformer` and `tupe_transformer_lm`."""

import re
from argparse import Namespace
from typing import Any

from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models.transformer import (
    DEFAULT_MAX_SOURCE_POSITIONS,
    DEFAULT_MAX_TARGET_POSITIONS,
    TransformerModel,
    base_architecture,
)
from fairseq.models.transformer_lm import TransformerLanguageModelConfig, base_lm_architecture

from ..errors import ConfigurationError
from .architectures import LM_ARCHITECTURES, TRANSFORMER_ARCHITECTURES
from .flags import training_setting
from .specification import ModelArguments

#: Position 0 holds no [CLS], so [CLS] is not untied; `sinusoidal` is fairseq's, so that stock
#: checkpoints can be loaded.
OPTION_DEFAULTS = {"tie_cls": True, "fairseq_sinusoids": True}
#: fairseq's flags that these models do not support, and what to do instead.
REFUSED = {
    "encoder_learned_pos": "use --position-encoding learned",
    "decoder_learned_pos": "use --position-encoding learned",
    "no_token_positional_embeddings": "use --position-encoding none",
    "cross_self_attention": "no distance is defined between source and target positions; remove "
    "the flag",
    "offload_activations": "use --checkpoint-activations",
    "base_layers": "remove the flag, all layers are dense",
    "character_embeddings": "remove the flag, each token has one embedding",
    "adaptive_input": "remove the flag, all embeddings have the same width",
    "encoder_xformers_att_config": "use --attention-backend",
    "decoder_xformers_att_config": "use --attention-backend",
    **dict.fromkeys(
        ("scale_fc", "scale_attn", "scale_heads", "scale_resids"),
        "remove the flag, layers are those of Vaswani et al. (2017)",
    ),
}


def _check(complete: Namespace, model: str) -> None:
    """Check for flags of stock transformers that these models do not support.

    Raises:
        ConfigurationError: such a flag is set.
    """
    for name, way_out in REFUSED.items():
        if value := getattr(complete, name, None):
            flag = "--" + name.replace("_", "-")
            raise ConfigurationError(
                f"{flag} is {value!r}, but {model} does not support it: {way_out}."
            )
    cutoff = getattr(complete, "adaptive_softmax_cutoff", None)
    # fairseq evaluates it as Python.
    if isinstance(cutoff, str) and not re.fullmatch(r"[\d\s,()\[\]]*", cutoff):
        raise ConfigurationError(
            f"--adaptive-softmax-cutoff is {cutoff!r}, but must be numbers separated by commas."
        )
    if getattr(complete, "deberta_emd", False):
        raise ConfigurationError(
            "--deberta-emd adds positions for the prediction of masked words, but "
            f"{model} masks none: remove the flag."
        )
    # --relu-dropout is the older name.
    complete.activation_dropout = complete.activation_dropout or getattr(
        complete, "relu_dropout", 0.0
    )


def _finish_transformer(complete: Namespace, args: Any, task: Any) -> None:
    _check(complete, "tupe_transformer")
    if complete.share_all_embeddings and task.source_dictionary != task.target_dictionary:
        raise ConfigurationError(
            "--share-all-embeddings needs one dictionary, but those of source and target differ "
            f"({len(task.source_dictionary)} and {len(task.target_dictionary)} symbols): "
            "preprocess with --joined-dictionary."
        )
    for name, default in (
        ("max_source_positions", DEFAULT_MAX_SOURCE_POSITIONS),
        ("max_target_positions", DEFAULT_MAX_TARGET_POSITIONS),
    ):
        if getattr(complete, name, None) is None:
            setattr(complete, name, default)


def _lm_base(complete: Namespace) -> None:
    """Set what is not set, as fairseq's `transformer_lm` and its dataclass do."""
    for name, value in (
        ("activation_dropout", 0.0),
        ("relu_dropout", 0.0),
        ("decoder_normalize_before", False),
    ):
        setattr(complete, name, getattr(complete, name, value))
    pre = complete.decoder_normalize_before
    base_lm_architecture(complete)
    # fairseq's function sets it, but fairseq's `--arch transformer_lm` never calls that function.
    complete.decoder_normalize_before = pre


def _finish_lm(complete: Namespace, args: Any, task: Any) -> None:
    _check(complete, "tupe_transformer_lm")
    if complete.decoder_layers_to_keep:
        complete.decoder_layers = len(complete.decoder_layers_to_keep.split(","))
    tokens = training_setting(args, "task", "tokens_per_sample")
    if tokens is not None and training_setting(args, "task", "add_bos_token"):
        tokens += 1
    given = getattr(complete, "max_target_positions", None)
    given = given or training_setting(args, "task", "max_target_positions")
    longest = given or tokens or DEFAULT_MAX_TARGET_POSITIONS
    if tokens is not None and tokens > longest:
        raise ConfigurationError(
            f"--max-target-positions is {longest}, but samples have {tokens} tokens "
            "(--tokens-per-sample, and one of --add-bos-token): give at least that number."
        )
    complete.max_target_positions = longest


def _add_lm_flags(parser: Any) -> None:
    gen_parser_from_dataclass(parser, TransformerLanguageModelConfig(), delete_default=True)


TRANSFORMER = ModelArguments(
    name="tupe_transformer",
    architectures=TRANSFORMER_ARCHITECTURES,
    stock_base=base_architecture,
    stock_flags=TransformerModel.add_args,
    finish=_finish_transformer,
    lengths=("max_source_positions", "max_target_positions"),
    option_defaults=OPTION_DEFAULTS,
    more_keys=frozenset({"max_target_positions", "add_bos_token"}),
)
LANGUAGE_MODEL = ModelArguments(
    name="tupe_transformer_lm",
    architectures=LM_ARCHITECTURES,
    stock_base=_lm_base,
    stock_flags=_add_lm_flags,
    finish=_finish_lm,
    lengths=("max_target_positions",),
    option_defaults=OPTION_DEFAULTS,
    more_keys=frozenset({"max_target_positions", "add_bos_token"}),
)
