"""`tupe_transformer_lm`: stock fairseq's language model with any position encoding."""

from argparse import Namespace
from typing import Any

from fairseq.models import register_model
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer_lm import TransformerLanguageModel

from ..arguments.completion import register_architectures
from ..arguments.transformers import LANGUAGE_MODEL
from ..hub.generator import GeneratorFromPretrained
from .checked_model import CheckedModel
from .transformer_decoder import TupeTransformerDecoder


@register_model("tupe_transformer_lm")
class TupeTransformerLM(CheckedModel, GeneratorFromPretrained, TransformerLanguageModel):
    """fairseq's TransformerLanguageModel with `--position-encoding`."""

    arguments = LANGUAGE_MODEL
    stacks = ("decoder",)

    @classmethod
    def from_arguments(cls, args: Namespace, task: Any) -> "TupeTransformerLM":
        embed_tokens = cls.build_embedding(args, task.source_dictionary, args.decoder_input_dim)
        decoder = TupeTransformerDecoder(
            TransformerConfig.from_namespace(args),
            task.target_dictionary,
            embed_tokens,
            no_encoder_attn=True,
        )
        return cls(decoder)


register_architectures(LANGUAGE_MODEL)
