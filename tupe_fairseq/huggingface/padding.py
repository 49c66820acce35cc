"""What transformers' attention masks mean here."""

import torch
from torch import Tensor

from ..attention import Padding
from ..base.errors import DataError
from ..base.tracing import is_exporting, known
from ..transformer.padding_shift import PaddingShift

#: The label of tokens that have none.
NO_LABEL = -100
#: Rows and columns of the M tokens that a head reads, M each.
Read = tuple[Tensor, Tensor]


def read_mask(attention_mask: Tensor | None) -> PaddingShift:
    """How padding is moved to the end of each row, where it is elsewhere.

    Positions count unmasked tokens, so the outputs of a sequence do not depend on where its
    padding is.

    Args:
        attention_mask: B×T, 1 or True at tokens; None: all are tokens.
    """
    if attention_mask is None:
        return PaddingShift()
    return PaddingShift.of(Padding.read(attention_mask == 0))


def check_inputs(
    input_ids: Tensor | None,
    inputs_embeds: Tensor | None,
    attention_mask: Tensor | None,
    token_type_ids: Tensor | None,
    width: int,
) -> None:
    """Check the arguments of `TupeModel.forward`; not their shapes while torch traces a graph.

    Args:
        input_ids: B×T, or None.
        inputs_embeds: B×T×C, or None.
        attention_mask: B×T, or None.
        token_type_ids: B×T, or None.
        width: C.

    Raises:
        DataError: both or none of the first two are given, or one has another shape.
    """
    if (input_ids is None) == (inputs_embeds is None):
        raise DataError("exactly one of input_ids and inputs_embeds must be given.")
    x = input_ids if inputs_embeds is None else inputs_embeds
    assert x is not None
    batch, length = (*x.shape, 0, 0)[:2]
    check_shape("input_ids", input_ids, (batch, length))
    check_shape("inputs_embeds", inputs_embeds, (batch, length, width))
    check_shape("attention_mask", attention_mask, (batch, length))
    check_shape("token_type_ids", token_type_ids, (batch, length))


def check_shape(name: str, x: Tensor | None, shape: tuple[int, ...]) -> None:
    """Raise a DataError if an argument of this name is given and has another shape."""
    if x is not None and not torch.compiler.is_compiling() and x.shape != shape:
        raise DataError(f"{name} has the shape {tuple(x.shape)}, but must have {tuple(shape)}.")


def for_each_row(x: Tensor | None, batch: Tensor | None) -> Tensor | None:
    """A mask or types of one row, 1×T, for each row of a batch, B×T or B×T×C."""
    if x is None or batch is None or x.dim() != 2:
        return x
    # In a graph that torch exports, a plain comparison would fix the size of the batch.
    is_one = x.size(0) == 1
    if is_exporting():
        is_one = known(is_one)
    return x.expand(len(batch), -1) if is_one else x


def visible(input_ids: Tensor | None, pad_token_id: int | None) -> Tensor | None:
    """The default attention mask: all tokens except padding."""
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
