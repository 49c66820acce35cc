"""What transformers' attention masks mean here."""

import torch
from torch import Tensor

from ..attention import Padding
from ..errors import DataError
from ..modules.padding_shift import PaddingShift

#: Rows and columns of the M tokens that a head reads, M each.
Read = tuple[Tensor, Tensor]


def read_mask(attention_mask: Tensor | None) -> PaddingShift:
    """How padding is moved to the end of each row, where it is elsewhere.

    Positions count unmasked tokens, so the outputs of a sequence do not depend on where its
    padding is. In a graph that torch exports, padding must be at the end.

    Args:
        attention_mask: B×T, 1 or True at tokens; None: all are tokens.

    Raises:
        DataError: the mask has another number of dimensions, or hides a whole sequence. The
            latter is not checked while torch traces a graph.
    """
    if attention_mask is None:
        return PaddingShift()
    if attention_mask.dim() != 2:
        raise DataError(
            f"attention_mask has the shape {tuple(attention_mask.shape)}, but must be batch × "
            "length, 1 at tokens and 0 at padding."
        )
    padding = Padding.read(attention_mask == 0)
    if padding is not None and padding.lengths is not None and 0 in padding.lengths:
        raise DataError(
            f"attention_mask hides all tokens of sequence {padding.lengths.index(0)}: leave that "
            "sequence out."
        )
    return PaddingShift.of(padding)


def visible(input_ids: Tensor | None, pad_token_id: int | None) -> Tensor | None:
    """The attention mask where none is given: all tokens but padding."""
    if input_ids is None or pad_token_id is None:
        return None
    return input_ids.ne(pad_token_id).to(torch.int64)


def first_tokens(x: Tensor, attention_mask: Tensor | None) -> Read:
    """Rows and columns of each sequence's first unmasked token, B each.

    Args:
        x: ids or vectors, B×T or B×T×C.
        attention_mask: B×T; None: all tokens are unmasked.
    """
    rows = torch.arange(x.size(0), device=x.device)
    if attention_mask is None:
        return rows, torch.zeros_like(rows)
    # The first of several largest values.
    return rows, attention_mask.ne(0).int().argmax(1)
