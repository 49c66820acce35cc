"""`tupe_transformer_lm`: stock fairseq's language model with any position encoding."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model
from fairseq.models.transformer import DEFAULT_MAX_TARGET_POSITIONS, TransformerConfig
from fairseq.models.transformer_lm import (
    TransformerLanguageModel,
    TransformerLanguageModelConfig,
)

from ..arguments.architectures import (
    LM_ARCHITECTURES,
    apply_lm_architecture,
    register_architectures,
)
from ..arguments.flags import add_position_args, training_setting
from ..commands import ends_commands_in_one_line
from ..errors import UsageError
from ..hub.generator import GeneratorFromPretrained
from .checked_model import CheckedModel, completed
from .transformer_decoder import TupeTransformerDecoder


@register_model("tupe_transformer_lm")
class TupeTransformerLM(CheckedModel, GeneratorFromPretrained, TransformerLanguageModel):
    """fairseq's TransformerLanguageModel with `--position-encoding`."""

    stacks = MappingProxyType({"decoder": "max_target_positions"})

    @classmethod
    def hub_models(cls):
        return {}

    @classmethod
    def add_args(cls, parser):
        """Stock fairseq's flags and ours."""
        gen_parser_from_dataclass(parser, TransformerLanguageModelConfig(), delete_default=True)
        add_position_args(parser)

    @classmethod
    @ends_commands_in_one_line
    def build_model(cls, args, task):
        """Build a model from a Namespace (command line) or DictConfig (hydra).

        Raises:
            UsageError: arguments or data that cannot be used.
        """
        with completed(cls, args, "tupe_transformer_lm", apply_lm_architecture) as flat:
            if args.decoder_layers_to_keep:
                flat.decoder_layers = len(args.decoder_layers_to_keep.split(","))
            args.max_target_positions = flat.max_target_positions = _longest(args)
            embed_tokens = cls.build_embedding(
                flat, task.source_dictionary, flat.decoder_input_dim
            )
            decoder = TupeTransformerDecoder(
                TransformerConfig.from_namespace(flat),
                task.target_dictionary,
                embed_tokens,
                no_encoder_attn=True,
            )
        model = cls(decoder)
        model.args = args
        return model


def _longest(args: Any) -> int:
    """--max-target-positions; by default --tokens-per-sample, and the <s> of --add-bos-token."""
    tokens = training_setting(args, "task", "tokens_per_sample")
    if tokens is not None and training_setting(args, "task", "add_bos_token"):
        tokens += 1
    given = getattr(args, "max_target_positions", None)
    if given is None:
        given = training_setting(args, "task", "max_target_positions")
    longest = given or tokens or DEFAULT_MAX_TARGET_POSITIONS
    if tokens is not None and tokens > longest:
        raise UsageError(
            f"--max-target-positions is {longest}, but samples have {tokens} tokens "
            "(--tokens-per-sample, and one of --add-bos-token): leave it out, or make it larger."
        )
    return longest


register_architectures("tupe_transformer_lm", LM_ARCHITECTURES, apply_lm_architecture)
