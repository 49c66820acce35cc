"""The encoder of `tupe_transformer`: source sentences to hidden states, padded on either side."""

from __future__ import annotations

from typing import Any

from fairseq.data import Dictionary
from fairseq.models import FairseqEncoder
from torch import Tensor, nn

from ..checkpoints.migration import drop_stock_sinusoids
from ..errors import UsageError
from .sentence_encoder import TupeSentenceEncoder
from .transformer_parts import build_positions, words_first


class TupeTransformerEncoder(TupeSentenceEncoder, FairseqEncoder):
    """In place of fairseq's TransformerEncoder.

    Args:
        args: arguments of the model, complete.
        dictionary: of the source language.
        embed_tokens: word embeddings.
    """

    def __init__(self, args: Any, dictionary: Dictionary, embed_tokens: nn.Embedding):
        positions = build_positions(args, "encoder", args.max_source_positions, len(dictionary))
        super().__init__(args, embed_tokens, positions)
        self.dictionary = dictionary
        self.embed_scale = 1.0 if args.no_scale_embedding else embed_tokens.embedding_dim**0.5

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
    ) -> dict[str, list[Tensor]]:
        """Encode token ids; the result has the keys and shapes of fairseq's TransformerEncoder.

        A word's position is its place among the words of its sentence, whatever padding is before
        it. `encoder_embedding` is left out, which no decoder of ours reads.

        Args:
            src_tokens: ids, B×S.
            src_lengths: not used, as in fairseq.
            return_all_hiddens: also return the first layer's input and each layer's output.
            token_embeddings: B×S×C, to take the place of the word embeddings.

        Raises:
            UsageError: more than --max-source-positions tokens.
        """
        moved = words_first(src_tokens.eq(self.padding_idx))
        if moved is not None:
            src_tokens = moved.forth(src_tokens)
            if token_embeddings is not None:
                token_embeddings = moved.forth(token_embeddings)
        found = super().forward(src_tokens, src_lengths, return_all_hiddens, token_embeddings)
        found["encoder_embedding"] = []
        if moved is not None:
            for key in ("encoder_out", "encoder_states"):
                # T×B×C -> B×T×C -> T×B×C
                found[key] = [moved.back(x.transpose(0, 1)).transpose(0, 1) for x in found[key]]
            found["encoder_padding_mask"] = [moved.back(x) for x in found["encoder_padding_mask"]]
        return found

    def reorder_encoder_out(
        self, encoder_out: dict[str, list[Tensor]], new_order: Tensor
    ) -> dict[str, list[Tensor]]:
        """Sentence i becomes what sentence new_order[i] was."""
        time_first = ("encoder_out", "encoder_states")
        return {
            key: [x.index_select(1 if key in time_first else 0, new_order) for x in values]
            for key, values in encoder_out.items()
        }

    def max_positions(self) -> int:
        """Longest source sentence, in tokens."""
        return self.embed_positions.shape.max_positions

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """As `TupeSentenceEncoder`'s; also drops what old checkpoints hold of sinusoids."""
        drop_stock_sinusoids(state_dict, name)
        super().upgrade_state_dict_named(state_dict, name)

    def _check(self, x: Tensor, padding_mask: Tensor | None) -> None:
        if x.size(1) > self.max_positions():
            raise UsageError(
                f"a source sentence has {x.size(1)} tokens, but --max-source-positions is "
                f"{self.max_positions()}: shorten it (--truncate-source), or train with more."
            )
