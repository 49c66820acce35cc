"""`tupe_roberta`: stock fairseq RoBERTa with the position encoding of your choice.

Heads, masked-LM interface, pruning and hub verbs are RoBERTa's, inherited; the encoder is ours.
"""

from __future__ import annotations

from argparse import Namespace
from contextlib import nullcontext
from types import MappingProxyType

from fairseq.models import register_model
from fairseq.models.roberta.model import RobertaEncoder, RobertaModel
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from fairseq.utils import safe_getattr, safe_hasattr
from omegaconf import OmegaConf, open_dict

from .. import commands
from ..arguments.architectures import (
    ROBERTA_ARCHITECTURES,
    apply_roberta_architecture,
    register_architectures,
)
from ..arguments.flags import (
    add_position_args,
    check_keys,
    check_lengths,
    check_pruning,
    training_setting,
)
from ..checkpoints.restoring import check_restore_file
from ..checks.data import check_data
from ..errors import UsageError
from ..hub.roberta import RobertaFromPretrained
from .checked_model import CheckedModel
from .sentence_encoder import build_roberta_encoder


class TupeRobertaEncoder(RobertaEncoder):
    """RoBERTa's encoder and LM head around `TupeSentenceEncoder`."""

    def build_encoder(self, args, dictionary, embed_tokens):
        encoder = build_roberta_encoder(args, dictionary, embed_tokens)
        encoder.apply(init_bert_params)
        return encoder

    def output_layer(self, features, masked_tokens=None, **unused):
        features = self.sentence_encoder.embed_positions.before_lm_head(features)
        return super().output_layer(features, masked_tokens)

    def forward(
        self,
        src_tokens,
        features_only=False,
        return_all_hiddens=False,
        masked_tokens=None,
        token_embeddings=None,
        **unused,
    ):
        """As in RobertaEncoder, which drops token_embeddings that R3F passes to it.

        Args:
            src_tokens: ids, B×T.
            features_only: leave out the LM head.
            return_all_hiddens: also return all hidden states, T×B×C each.
            masked_tokens: B×T mask; only these tokens go through the LM head.
            token_embeddings: B×T×C, to take the place of the word embeddings.
            **unused: what else fairseq's batches hold (src_lengths, ...).

        Returns:
            Features B×T×C or logits over the vocabulary, and {"inner_states": ...}.
        """
        x, extra = self.extract_features(
            src_tokens, return_all_hiddens, token_embeddings=token_embeddings
        )
        if not features_only:
            x = self.output_layer(x, masked_tokens=masked_tokens)
        return x, extra


@register_model("tupe_roberta")
class TupeRobertaModel(CheckedModel, RobertaFromPretrained, RobertaModel):
    """RoBERTa with `--position-encoding`."""

    stacks = MappingProxyType({"encoder.sentence_encoder": "max_positions"})

    @classmethod
    def hub_models(cls):
        return {}

    @staticmethod
    def add_args(parser):
        """Stock RoBERTa's flags and ours."""
        RobertaModel.add_args(parser)
        add_position_args(parser)
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

    @classmethod
    @commands.ends_commands_in_one_line
    def build_model(cls, args, task):
        """Build a model from a Namespace (command line) or DictConfig (hydra)."""
        known = Namespace(tokens_per_sample=0, max_positions=0, base_layers=0)
        apply_roberta_architecture("tupe_roberta", known)
        check_keys(args, cls, known=set(vars(known)))
        check_pruning(args)
        if commands.current() == "train":
            check_restore_file(args)
            check_data(training_setting(args, "task", "data") or "", task.source_dictionary)
        with open_dict(args) if OmegaConf.is_config(args) else nullcontext():
            apply_roberta_architecture("tupe_roberta", args)
            if not safe_hasattr(args, "max_positions"):
                if not safe_hasattr(args, "tokens_per_sample"):
                    # fairseq 0.12.2's masked_lm does not tell.
                    given = training_setting(args, "task", "tokens_per_sample")
                    args.tokens_per_sample = given or task.max_positions()
                args.max_positions = args.tokens_per_sample
            check_lengths(args)
            # Under hydra 1.0 fairseq's trainer finds None where this is missing, and compares it.
            args.base_layers = safe_getattr(args, "base_layers", 0)
            encoder = TupeRobertaEncoder(args, task.source_dictionary)
        return cls(args, encoder)

    @commands.ends_commands_in_one_line
    def get_targets(self, sample, net_output):
        """Targets of a batch.

        Raises:
            UsageError: the data has no labels.
        """
        if "target" not in sample:
            raise UsageError(
                "the data has no labels: `label/` beside `input0/` must hold them for this split "
                "(for regression: a file label/SPLIT.label)."
            )
        return super().get_targets(sample, net_output)


register_architectures("tupe_roberta", ROBERTA_ARCHITECTURES, apply_roberta_architecture)
