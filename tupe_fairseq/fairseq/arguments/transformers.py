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

from ...base.errors import ConfigurationError
from .architectures import LM_ARCHITECTURES, TRANSFORMER_ARCHITECTURES
from .declaration import ModelArguments
from .training import TrainingSettings

#: Position 0 holds no [CLS], so [CLS] is not untied; `sinusoidal` is fairseq's, so that stock
#: checkpoints can be loaded.
OPTION_DEFAULTS = {"tie_cls": True, "fairseq_sinusoids": True}
#: Settings of the task that the hub needs.
LANGUAGES = ("source_lang", "target_lang")
UNSUPPORTED = {
    "decoder_learned_pos": "use --position-encoding learned",
    "no_token_positional_embeddings": "use --position-encoding none",
    "offload_activations": "use --checkpoint-activations",
    "base_layers": "remove the flag, all layers are dense",
    "adaptive_input": "remove the flag, all embeddings have the same width",
    "decoder_xformers_att_config": "use --attention-backend",
    "deberta_emd": "it adds positions before the LM head of masked language models only; remove "
    "the flag",
}
UNSUPPORTED_TRANSFORMER = {
    **UNSUPPORTED,
    "encoder_learned_pos": "use --position-encoding learned",
    "encoder_xformers_att_config": "use --attention-backend",
    "cross_self_attention": "no distance is defined between source and target positions; remove "
    "the flag",
}
UNSUPPORTED_LM = {
    **UNSUPPORTED,
    "character_embeddings": "remove the flag, each token has one embedding",
    **dict.fromkeys(
        ("scale_fc", "scale_attn", "scale_heads", "scale_resids"),
        "remove the flag, layers are those of Vaswani et al. (2017)",
    ),
}


def _finish_both(args: Namespace) -> dict[str, Any]:
    """What both models share."""
    cutoff = getattr(args, "adaptive_softmax_cutoff", None)
    # fairseq evaluates it as Python.
    if isinstance(cutoff, str) and not re.fullmatch(r"[\d\s,()\[\]]*", cutoff):
        raise ConfigurationError(
            f"--adaptive-softmax-cutoff is {cutoff!r}, but must be numbers separated by commas."
        )
    # --relu-dropout is the older name.
    return {"activation_dropout": args.activation_dropout or getattr(args, "relu_dropout", 0.0)}


def _finish_transformer(args: Namespace, training: TrainingSettings, task: Any) -> dict[str, Any]:
    if args.share_all_embeddings and task.source_dictionary != task.target_dictionary:
        raise ConfigurationError(
            "--share-all-embeddings needs one dictionary, but those of source and target differ "
            f"({len(task.source_dictionary)} and {len(task.target_dictionary)} symbols): "
            "preprocess with --joined-dictionary."
        )
    lengths = {
        "max_source_positions": DEFAULT_MAX_SOURCE_POSITIONS,
        "max_target_positions": DEFAULT_MAX_TARGET_POSITIONS,
    }
    missing = {name: n for name, n in lengths.items() if getattr(args, name, None) is None}
    # Without -s and -t, fairseq finds them in the names of the data, and does not record them.
    found = {name: getattr(task.cfg, name, None) for name in LANGUAGES}
    return {**_finish_both(args), **missing, **found}


def _lm_base(args: Namespace) -> None:
    """Set what is not set, as fairseq's `transformer_lm` and its dataclass do."""
    unset = {"activation_dropout": 0.0, "relu_dropout": 0.0, "decoder_normalize_before": False}
    vars(args).update({**unset, **vars(args)})
    pre = args.decoder_normalize_before
    base_lm_architecture(args)
    # fairseq's function sets it, but fairseq's `--arch transformer_lm` never calls that function.
    args.decoder_normalize_before = pre


def _finish_lm(args: Namespace, training: TrainingSettings, task: Any) -> dict[str, Any]:
    values = _finish_both(args)
    if args.decoder_layers_to_keep:
        values["decoder_layers"] = len(args.decoder_layers_to_keep.split(","))
    tokens = training.tokens_per_sample
    if tokens is not None and training.add_bos_token:
        tokens += 1
    longest = getattr(args, "max_target_positions", None) or training.max_target_positions
    longest = longest or tokens or DEFAULT_MAX_TARGET_POSITIONS
    if tokens is not None and tokens > longest:
        raise ConfigurationError(
            f"--max-target-positions is {longest}, but samples have {tokens} tokens "
            "(--tokens-per-sample, plus one for --add-bos-token): give at least that number."
        )
    return {**values, "max_target_positions": longest}


def _add_lm_flags(parser: Any) -> None:
    gen_parser_from_dataclass(parser, TransformerLanguageModelConfig(), delete_default=True)


TRANSFORMER = ModelArguments(
    name="tupe_transformer",
    architectures=TRANSFORMER_ARCHITECTURES,
    stock_base=base_architecture,
    stock_flags=TransformerModel.add_args,
    unsupported=UNSUPPORTED_TRANSFORMER,
    lengths=("max_source_positions", "max_target_positions"),
    finish=_finish_transformer,
    option_defaults=OPTION_DEFAULTS,
)
LANGUAGE_MODEL = ModelArguments(
    name="tupe_transformer_lm",
    architectures=LM_ARCHITECTURES,
    stock_base=_lm_base,
    stock_flags=_add_lm_flags,
    unsupported=UNSUPPORTED_LM,
    lengths=("max_target_positions",),
    finish=_finish_lm,
    option_defaults=OPTION_DEFAULTS,
)
