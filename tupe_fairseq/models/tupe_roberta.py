"""`tupe_roberta`: stock fairseq RoBERTa with any position encoding.

Heads, masked-LM interface, pruning and hub methods are inherited from RoBERTa; the encoder is
ours.
"""

from argparse import Namespace
from typing import Any

from fairseq.data import Dictionary
from fairseq.models import register_model
from fairseq.models.roberta.model import RobertaEncoder, RobertaModel
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from torch import Tensor, nn

from .. import commands
from ..arguments.completion import register_architectures
from ..arguments.roberta import ROBERTA
from ..errors import DataError
from ..hub.roberta import RobertaFromPretrained
from ..kernels.layer_norm import set_epsilon
from .checked_model import CheckedModel
from .sentence_encoder import TupeSentenceEncoder


class TupeRobertaEncoder(RobertaEncoder):
    """RoBERTa's encoder and LM head around `TupeSentenceEncoder`."""

    def build_encoder(
        self, args: Namespace, dictionary: Dictionary, embed_tokens: nn.Embedding
    ) -> TupeSentenceEncoder:
        encoder = TupeSentenceEncoder(args, dictionary, embed_tokens)
        encoder.apply(init_bert_params)
        return encoder

    def output_layer(
        self, features: Tensor, masked_tokens: Tensor | None = None, **unused: Any
    ) -> Tensor:
        features = self.sentence_encoder.embed_positions.before_lm_head(features)
        return super().output_layer(features, masked_tokens)

    def forward(
        self,
        src_tokens: Tensor,
        features_only: bool = False,
        return_all_hiddens: bool = False,
        masked_tokens: Tensor | None = None,
        token_embeddings: Tensor | None = None,
        **unused: Any,
    ) -> tuple[Tensor, dict[str, Any]]:
        """As RobertaEncoder's, which drops the token_embeddings (B×T×C) that R3F passes to it."""
        x, extra = self.extract_features(
            src_tokens, return_all_hiddens, token_embeddings=token_embeddings
        )
        if not features_only:
            x = self.output_layer(x, masked_tokens=masked_tokens)
        return x, extra


@register_model("tupe_roberta")
class TupeRobertaModel(CheckedModel, RobertaFromPretrained, RobertaModel):
    """RoBERTa with `--position-encoding`."""

    arguments = ROBERTA
    stacks = ("encoder.sentence_encoder",)

    @classmethod
    def from_arguments(cls, args: Namespace, task: Any) -> "TupeRobertaModel":
        encoder = TupeRobertaEncoder(args, task.source_dictionary)
        set_epsilon(encoder, args.layer_norm_eps)
        return cls(args, encoder)

    @classmethod
    def data_dictionary(cls, task: Any) -> Dictionary:
        return task.source_dictionary

    @commands.ends_commands_in_one_line
    def get_targets(self, sample: dict[str, Any], net_output: Any) -> Tensor:
        """Targets of a batch.

        Raises:
            DataError: the data has no labels.
        """
        if "target" not in sample:
            raise DataError(
                "the data has no labels: `label/` beside `input0/` must hold them for this split "
                "(for regression: a file label/SPLIT.label)."
            )
        return super().get_targets(sample, net_output)


register_architectures(ROBERTA)
