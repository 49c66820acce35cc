"""`tupe_transformer`: stock fairseq's encoder-decoder with any position encoding.

Arguments, embeddings, generation, criterions and state dicts are inherited from fairseq.
"""

from pathlib import Path
from typing import Any

from fairseq.data.data_utils import infer_language_pair
from fairseq.models import register_model
from fairseq.models.transformer import TransformerModel

from .. import commands
from ..arguments.flags import training_setting
from ..arguments.specification import register_architectures
from ..arguments.transformers import TRANSFORMER
from ..checks.data import check_lengths_of_pairs
from ..hub.generator import GeneratorFromPretrained
from .checked_model import CheckedModel
from .positions import build_transformer_positions
from .sentence_encoder import TupeTransformerEncoder
from .transformer_decoder import TupeTransformerDecoder


@register_model("tupe_transformer")
class TupeTransformerModel(CheckedModel, GeneratorFromPretrained, TransformerModel):
    """fairseq's Transformer with `--position-encoding` in encoder and decoder."""

    arguments = TRANSFORMER
    stacks = (("encoder", "max_source_positions"), ("decoder", "max_target_positions"))

    @classmethod
    def from_arguments(cls, args, task):
        # fairseq's `build_model`, which is next after that of the mixin.
        return super(CheckedModel, cls).build_model(args, task)

    @classmethod
    def build_encoder(cls, cfg, src_dict, embed_tokens):
        positions = build_transformer_positions(
            cfg, "encoder", cfg.max_source_positions, len(src_dict)
        )
        scale = 1.0 if cfg.no_scale_embedding else embed_tokens.embedding_dim**0.5
        return TupeTransformerEncoder(cfg, src_dict, embed_tokens, positions, scale)

    @classmethod
    def build_decoder(cls, cfg, tgt_dict, embed_tokens):
        return TupeTransformerDecoder(cfg, tgt_dict, embed_tokens, cfg.no_cross_attention)

    def forward(self, *args, return_all_hiddens=False, **kwargs):
        """As fairseq's; returns the encoder's hidden states only on request."""
        return super().forward(*args, return_all_hiddens=return_all_hiddens, **kwargs)

    def set_beam_size(self, beam_size: int) -> None:
        """Called by fairseq's beam search: the number of hypotheses for each source sentence."""
        self.decoder.set_beam_size(beam_size)

    @classmethod
    def check_training(cls, complete, args, task):
        super().check_training(complete, args, task)
        if not training_setting(args, "dataset", "skip_invalid_size_inputs_valid_test"):
            subsets = training_setting(args, "dataset", "valid_subset") or "valid"
            longest = (complete.max_source_positions, complete.max_target_positions)
            check_sentences(task.cfg, subsets, longest)

    @commands.ends_commands_in_one_line
    def prepare_for_inference_(self, cfg):
        """As fairseq's; checks the lengths of the sentences that fairseq-generate will read.

        Raises:
            DataError: one is longer than the model's positions.
        """
        super().prepare_for_inference_(cfg)
        skips = cfg.dataset.skip_invalid_size_inputs_valid_test
        if commands.current() == "generate" and not skips:
            check_sentences(cfg.task, cfg.dataset.gen_subset, self.max_positions())


def check_sentences(task: Any, subsets: str, longest: tuple[int, int]) -> None:
    """Refuse sentences that are longer than a model's positions.

    Args:
        task: settings of the task.
        subsets: names of the sets to check, separated by commas.
        longest: most tokens of source and target.

    Raises:
        DataError: there is such a sentence.
    """
    folder = Path(str(task.data).split(":")[0])
    languages = (task.source_lang, task.target_lang)
    if None in languages:
        languages = infer_language_pair(str(folder))
    for subset in subsets.split(","):
        check_lengths_of_pairs(folder, subset, languages, longest)


register_architectures(TRANSFORMER)
