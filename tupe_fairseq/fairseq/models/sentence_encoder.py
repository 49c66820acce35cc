"""The encoders of `tupe_roberta` and `tupe_transformer`, with fairseq's names and shapes."""

from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import FairseqEncoder
from fairseq.models.transformer import TransformerEncoderBase
from fairseq.modules.quant_noise import quant_noise
from torch import Tensor, nn

from ...attention import Padding
from ...base.errors import DataError
from ...transformer.forward_pass import Pass
from ...transformer.padding_shift import PaddingShift
from .fairseq_layers import FairseqStack, stack_config


class TupeSentenceEncoder(FairseqStack, FairseqEncoder):
    """Token embeddings and `TransformerStack`, in place of fairseq's TransformerEncoder.

    With --type-vocab-size 2 or more, the tokens up to the first </s> of a sequence have type 0 and
    all after it type 1, as the two sentences of a pair in BERT, `<s> a </s> b </s>`.

    Args:
        args: arguments of the model, complete.
        dictionary: of the tokens.
        embed_tokens: token embeddings.
    """

    longest = "max_positions"
    large_positions = False
    #: Whether padding before a token is moved to the end, or refused.
    shifts_padding = False

    #: Makes sequence i what sequence new_order[i] was.
    reorder_encoder_out = TransformerEncoderBase.reorder_encoder_out

    def __init__(self, args: Any, dictionary: Dictionary, embed_tokens: nn.Embedding):
        more = {"compile_layers": args.compile_layers, "token_types": args.type_vocab_size}
        super().__init__(args, "encoder", dictionary, stack_config(args, "encoder", **more))
        self.embed_tokens = embed_tokens
        #: Factor of the token embeddings.
        self.embed_scale = self.embed_positions.token_scale(self.embed_positions.shape.embed_dim)
        self.padding_idx: Any = embed_tokens.padding_idx
        self.eos_idx: Any = dictionary.eos()
        # In fairseq's state dicts, 3 says that LayerNorms have today's names.
        self.register_buffer("version", torch.tensor([3.0]))
        self.quant_noise: nn.Module | None = None
        if args.quant_noise_pq > 0:
            width = embed_tokens.embedding_dim
            noise = args.quant_noise_pq
            projection = nn.Linear(width, width, bias=False)
            self.quant_noise = quant_noise(projection, noise, args.quant_noise_pq_block_size)

    def forward(  # type: ignore[override]
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
        read: Tensor | None = None,
    ) -> dict[str, list[Tensor]]:
        """As fairseq's TransformerEncoder; without padding, the list of padding masks is empty.

        Args:
            src_tokens: ids, B×T.
            src_lengths: not used, as in fairseq.
            return_all_hiddens: also return the first layer's input and each layer's output.
            token_embeddings: B×T×C, used in place of the token embeddings.
            read: the M tokens that are read, by their indices among the B·T cells of the batch
                (see `Pass`); for encoders that do not move padding.

        Returns:
            fairseq's lists by name: `encoder_out` has T×B×C. With `read` it is empty, and the list
            `read` has the vectors of these tokens, M×C.

        Raises:
            UsageError: too many tokens, padding before a token where that is refused, unknown ids.
        """
        mask = src_tokens.eq(self.padding_idx)
        padding = Padding.read(mask)
        # A token's position is its index among the tokens of its sequence.
        shift = PaddingShift.of(padding) if self.shifts_padding else PaddingShift(padding)
        src_tokens = shift.to_end(src_tokens)
        padding = shift.padding
        if token_embeddings is None:
            embedded = self._looked_up(src_tokens)
        else:
            embedded = shift.to_end(token_embeddings)
        if self.embed_scale != 1:
            embedded = self.embed_scale * embedded
        types = self.types_of(src_tokens)
        wanted = Pass(src_tokens, types, read=read, keep_states=return_all_hiddens)
        # Not by `encode`, which would be one more frame.
        x, states, _ = self.run(self.begin(embedded, padding, wanted), wanted)
        return {
            # B×T×C -> T×B×C
            "encoder_out": [shift.back(x).transpose(0, 1)] if read is None else [],
            "read": [] if read is None else [x],
            "encoder_padding_mask": [] if padding is None else [mask],
            # No decoder of a translation model reads it.
            "encoder_embedding": [] if self.shifts_padding else [embedded],
            "encoder_states": [shift.back(state).transpose(0, 1) for state in states],
            "src_tokens": [],
            "src_lengths": [(~mask).sum(dim=1, keepdim=True, dtype=torch.int32)],
        }

    def types_of(self, tokens: Tensor) -> Tensor | None:
        """Types of tokens, B×T; None where all have type 0."""
        if self.embed_token_types is None or self.embed_token_types.num_embeddings == 1:
            return None
        ends = tokens.eq(self.eos_idx)
        return (ends.cumsum(1) > ends).long()

    def normalise_and_drop(self, x: Tensor) -> Tensor:
        x = super().normalise_and_drop(x)
        return x if self.quant_noise is None else self.quant_noise(x)

    def set_num_updates(self, num_updates: int) -> None:
        """Do nothing: fairseq's method would call `apply` on all modules at every update."""

    def _looked_up(self, tokens: Tensor) -> Tensor:
        """Token embeddings, B×T×C."""
        try:
            return self.embed_tokens(tokens)
        # On a CPU; on a GPU, a check of every batch would cost time.
        except IndexError as error:
            raise DataError(
                f"the data contain the token id {int(tokens.max())}, but the dictionary has "
                f"{self.embed_tokens.num_embeddings} symbols: the data are damaged, or were "
                "binarised with another dictionary; run fairseq-preprocess again."
            ) from error


class TupeTransformerEncoder(TupeSentenceEncoder):
    """The encoder of `tupe_transformer`: source sequences, padded on either side."""

    longest = "max_source_positions"
    large_positions = True
    shifts_padding = True
    length_limit = ("--max-source-positions", "shorten it (--truncate-source)")

    def __init__(self, args: Any, dictionary: Dictionary, embed_tokens: nn.Embedding):
        super().__init__(args, dictionary, embed_tokens)
        self.embed_scale = 1.0 if args.no_scale_embedding else embed_tokens.embedding_dim**0.5
