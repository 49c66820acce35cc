"""`tupe_roberta`: stock fairseq RoBERTa with the position encoding of your choice.

Heads, masked-LM interface, pruning and hub verbs are RoBERTa's, inherited; the encoder is ours.
"""

from __future__ import annotations

from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from fairseq.models import register_model
from fairseq.models.roberta.model import RobertaEncoder, RobertaModel
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from fairseq.utils import safe_hasattr
from omegaconf import OmegaConf, open_dict

from ..errors import UsageError, ends_commands_in_one_line, under_fairseq_command
from .architectures import (
    ROBERTA_ARCHITECTURES,
    apply_roberta_architecture,
    register_architectures,
)
from .arguments import (
    DEFAULT_RESTORE_FILE,
    add_position_args,
    check_keys,
    check_lengths,
    check_pruning,
    check_restore_file,
    end_if_finished,
    training_setting,
)
from .data_files import check_data
from .mismatch import explain_mismatch
from .sentence_encoder import TupeSentenceEncoder


class TupeRobertaEncoder(RobertaEncoder):
    """RoBERTa's encoder and LM head around `TupeSentenceEncoder`."""

    def build_encoder(self, args, dictionary, embed_tokens):
        encoder = TupeSentenceEncoder(args, embed_tokens)
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
class TupeRobertaModel(RobertaModel):
    """RoBERTa with `--position-encoding`."""

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
    @ends_commands_in_one_line
    def build_model(cls, args, task):
        """Build a model from a Namespace (command line) or DictConfig (hydra)."""
        known = Namespace(tokens_per_sample=0, max_positions=0)
        apply_roberta_architecture("tupe_roberta", known)
        check_keys(args, cls, known=set(vars(known)))
        check_pruning(args)
        if under_fairseq_command("train"):
            check_restore_file(args)
            check_data(training_setting(args, "task", "data") or "", task.source_dictionary)
        with open_dict(args) if OmegaConf.is_config(args) else nullcontext():
            apply_roberta_architecture("tupe_roberta", args)
            if not safe_hasattr(args, "max_positions"):
                if not safe_hasattr(args, "tokens_per_sample"):
                    args.tokens_per_sample = task.max_positions()
                args.max_positions = args.tokens_per_sample
            check_lengths(args)
            encoder = TupeRobertaEncoder(args, task.source_dictionary)
        return cls(args, encoder)

    def __init__(self, args: Any, encoder: TupeRobertaEncoder):
        super().__init__(args, encoder)
        self._loaded = False

    @ends_commands_in_one_line
    def forward(self, *args, **kwargs):
        """RoBERTa's forward; see `TupeRobertaEncoder.forward`.

        Raises:
            UsageError: too long or left-padded input; training with a --restore-file that named no
                file, where fairseq would start from scratch with exit status 0.
        """
        if self.training and not self._loaded:
            self._check_restore_file()
        return super().forward(*args, **kwargs)

    def _check_restore_file(self) -> None:
        path = training_setting(self.args, "checkpoint", "restore_file")
        if path not in (None, DEFAULT_RESTORE_FILE):
            raise UsageError(
                f"--restore-file is {str(path)!r}, but no such file was loaded (looked in "
                f"{Path.cwd()}); give a path that exists, or leave it out to start from scratch."
            )

    @ends_commands_in_one_line
    def load_state_dict(self, state_dict, strict=True, model_cfg=None, args=None):
        """Load a state dict, of stock RoBERTa too; what does not fit is told in one line.

        Raises:
            UsageError: it belongs to another encoding, number of positions, dictionary or shape.
        """
        try:
            result = super().load_state_dict(state_dict, strict, model_cfg, args)
        except RuntimeError as error:
            raise UsageError(explain_mismatch(self, state_dict)) from error
        self._loaded = True
        if under_fairseq_command("train"):
            end_if_finished(self.args)
        return result

    @ends_commands_in_one_line
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

    @classmethod
    def from_pretrained(
        cls,
        model_name_or_path,
        checkpoint_file=None,
        data_name_or_path=None,
        bpe=None,
        **kwargs,
    ):
        """Load a trained model; see `hub_interface.load_directory`."""
        from .hub_interface import load_directory

        return load_directory(
            model_name_or_path, checkpoint_file, data_name_or_path, bpe, **kwargs
        )


register_architectures("tupe_roberta", ROBERTA_ARCHITECTURES, apply_roberta_architecture)
