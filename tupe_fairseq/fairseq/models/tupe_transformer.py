"""`tupe_transformer`: stock fairseq's encoder-decoder with any position encoding.

Arguments, embeddings, generation, criterions and state dicts are inherited from fairseq.
"""

from argparse import Namespace
from typing import Any

from fairseq.data import Dictionary
from fairseq.models import register_model
from fairseq.models.transformer import TransformerModel
from torch import nn

from ..arguments.completion import register_architectures
from ..arguments.transformers import TRANSFORMER
from ..hub.generator import GeneratorFromPretrained
from .checked_model import CheckedModel
from .sentence_encoder import TupeTransformerEncoder
from .transformer_decoder import TupeTransformerDecoder


@register_model("tupe_transformer")
class TupeTransformerModel(CheckedModel, GeneratorFromPretrained, TransformerModel):
    """fairseq's Transformer with `--position-encoding` in encoder and decoder."""

    arguments = TRANSFORMER
    stacks = ("encoder", "decoder")

    @classmethod
    def from_arguments(cls, args: Namespace, task: Any) -> "TupeTransformerModel":
        # fairseq's `build_model`, which is next after that of the mixin.
        model = super(CheckedModel, cls).build_model(args, task)
        # label_smoothed_cross_entropy_with_alignment reads the alignment in training, too.
        model.decoder.aligns_in_training = bool(getattr(task.cfg, "load_alignments", False))
        return model

    @classmethod
    def build_encoder(
        cls, cfg: Any, src_dict: Dictionary, embed_tokens: nn.Embedding
    ) -> TupeTransformerEncoder:
        return TupeTransformerEncoder(cfg, src_dict, embed_tokens)

    @classmethod
    def build_decoder(
        cls, cfg: Any, tgt_dict: Dictionary, embed_tokens: nn.Embedding
    ) -> TupeTransformerDecoder:
        return TupeTransformerDecoder(cfg, tgt_dict, embed_tokens, cfg.no_cross_attention)

    def forward(self, *args: Any, return_all_hiddens: bool = False, **kwargs: Any) -> Any:
        """As fairseq's; returns the encoder's hidden states only on request."""
        return super().forward(*args, return_all_hiddens=return_all_hiddens, **kwargs)

    def set_beam_size(self, beam_size: int) -> None:
        """Called by fairseq's beam search: the number of hypotheses for each source sentence."""
        self.decoder.set_beam_size(beam_size)


register_architectures(TRANSFORMER)
