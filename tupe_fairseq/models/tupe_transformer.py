"""`tupe_transformer`: stock fairseq's encoder-decoder with the position encoding of your choice.

Arguments, embeddings, generation, criterions and state dicts are fairseq's, inherited.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Any

from fairseq.data.data_utils import infer_language_pair
from fairseq.models import register_model
from fairseq.models.transformer import TransformerModel

from .. import commands
from ..arguments.architectures import (
    TRANSFORMER_ARCHITECTURES,
    apply_transformer_architecture,
    register_architectures,
)
from ..arguments.flags import add_position_args, training_setting
from ..checks.data import check_lengths_of_pairs
from ..errors import UsageError
from ..hub.generator import GeneratorFromPretrained
from .checked_model import CheckedModel, completed
from .sentence_encoder import build_transformer_encoder
from .transformer_decoder import TupeTransformerDecoder


@register_model("tupe_transformer")
class TupeTransformerModel(CheckedModel, GeneratorFromPretrained, TransformerModel):
    """fairseq's Transformer with `--position-encoding` in encoder and decoder."""

    stacks = MappingProxyType(
        {"encoder": "max_source_positions", "decoder": "max_target_positions"}
    )

    @classmethod
    def hub_models(cls):
        return {}

    @classmethod
    def add_args(cls, parser):
        """Stock fairseq's flags and ours."""
        super().add_args(parser)
        add_position_args(parser)

    @classmethod
    @commands.ends_commands_in_one_line
    def build_model(cls, args, task):
        """Build a model from a Namespace (command line) or DictConfig (hydra).

        Raises:
            UsageError: arguments, dictionaries or data that cannot be used.
        """
        with completed(cls, args, "tupe_transformer", apply_transformer_architecture) as flat:
            if flat.share_all_embeddings and task.source_dictionary != task.target_dictionary:
                raise UsageError(
                    "--share-all-embeddings needs one dictionary, but those of source and target "
                    f"differ ({len(task.source_dictionary)} and {len(task.target_dictionary)} "
                    "symbols): preprocess with --joined-dictionary."
                )
            model = super().build_model(flat, task)
        model.args = args
        skips = training_setting(args, "dataset", "skip_invalid_size_inputs_valid_test")
        if commands.current() == "train" and not skips:
            subsets = training_setting(args, "dataset", "valid_subset") or "valid"
            model.check_data_lengths(task.cfg, subsets)
        return model

    @classmethod
    def build_encoder(cls, cfg, src_dict, embed_tokens):
        return build_transformer_encoder(cfg, src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, cfg, tgt_dict, embed_tokens):
        return TupeTransformerDecoder(cfg, tgt_dict, embed_tokens, cfg.no_cross_attention)

    def forward(self, *args, return_all_hiddens=False, **kwargs):
        """As fairseq's, but without the encoder's hidden states where they are not asked for."""
        return super().forward(*args, return_all_hiddens=return_all_hiddens, **kwargs)

    def set_beam_size(self, beam_size: int) -> None:
        """Called by fairseq's beam search: so many hypotheses share a source sentence."""
        self.decoder.set_beam_size(beam_size)

    @commands.ends_commands_in_one_line
    def prepare_for_inference_(self, cfg):
        """As fairseq's; looks at the lengths of the sentences that fairseq-generate will read."""
        super().prepare_for_inference_(cfg)
        skips = cfg.dataset.skip_invalid_size_inputs_valid_test
        if commands.current() == "generate" and not skips:
            self.check_data_lengths(cfg.task, cfg.dataset.gen_subset)

    def check_data_lengths(self, task: Any, subsets: str) -> None:
        """Refuse sentences longer than the model's positions in some subsets of a task's data."""
        folder = Path(str(task.data).split(":")[0])
        languages = (task.source_lang, task.target_lang)
        if None in languages:
            languages = infer_language_pair(str(folder))
        for subset in subsets.split(","):
            check_lengths_of_pairs(folder, subset, languages, self.max_positions())


register_architectures(
    "tupe_transformer", TRANSFORMER_ARCHITECTURES, apply_transformer_architecture
)
