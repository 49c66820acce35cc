"""A recurrent layer in front of the Transformer (Neishi & Yoshinaga 2019): x := GRU(x).

The state of a recurrent network depends on the order of its inputs, so no positions are added.
Encoders read both sides: half of the channels are the states of a GRU from the left, the other
half those of one from the right. Decoders read from the left. The paper's encoder also reads from
the left only.

--rnn-recursive: x + p_k with p_{k+1} = f(p_k), the "recursive" encodings of the survey of Dufter
et al. 2021; p_0 and f, a GRU with constant input, are learned. FLOATER is the continuous form.
"""

from typing import Annotated

import torch
from torch import Tensor, nn

from ..base.errors import ConfigurationError
from .base import PositionEncoding, Shape, register_position_encoding
from .initial import random_vectors


class RecursivePath(nn.Module):
    """Positions p_0, p_1, ... of width C in steps of one network, shared by all sequences.

    At the start, it should be able to tell the first `longest` of them apart.
    """

    def __init__(self, width: int, longest: int):
        super().__init__()
        self.first = random_vectors(width)
        self.step = nn.GRU(1, width, batch_first=True)
        # z = σ(ln τ) keeps a channel for about τ steps (Tallec & Ollivier 2018). With z = 0.5, all
        # positions beyond the first twenty are the same at the start.
        memory = torch.empty(width).uniform_(1, max(2, longest))
        with torch.no_grad():
            self.step.get_parameter("bias_hh_l0")[width : 2 * width] = memory.log()

    def forward(self, length: int) -> Tensor:
        """p_0, ..., p_{length−1}: length×C."""
        first = self.first[None]
        if length == 1:
            return first
        inputs = self.first.new_ones(length - 1, 1)
        return torch.cat((first, self.step(inputs, first)[0]))


@register_position_encoding("rnn")
class RnnPosition(PositionEncoding):
    """Recurrent layers over the tokens, or with --rnn-recursive over the positions alone."""

    def __init__(
        self,
        shape: Shape,
        *,
        rnn_recursive: Annotated[
            bool, "add positions p_{k+1} = f(p_k) instead of a recurrent layer over the tokens"
        ] = False,
    ):
        super().__init__(shape)
        width = shape.embed_dim
        self.path: RecursivePath | None = None
        self.from_right: nn.GRU | None = None
        if rnn_recursive:
            self.path = RecursivePath(width, shape.max_positions)
        elif not shape.bidirectional:
            self.from_left = nn.GRU(width, width, batch_first=True)
            self.context = shape.max_positions
        elif width % 2:
            raise ConfigurationError(
                f"rnn divides the model width into two directions, but it is odd: {width}."
            )
        else:
            self.from_left = nn.GRU(width, width // 2, batch_first=True)
            self.from_right = nn.GRU(width, width // 2, batch_first=True)

    def embed(
        self, x: Tensor, tokens: object = None, padding_mask: Tensor | None = None, start: int = 0
    ) -> Tensor:
        if self.path is not None:
            return x + self.path(start + x.size(1))[start:].to(x.dtype)
        states = self.from_left(x)[0]
        if self.from_right is None:
            return states
        # Not nn.GRU's own second direction, which needs the lengths on the host.
        order = reversed_order(x, padding_mask)
        backwards = reorder(self.from_right(reorder(x, order))[0], order)
        return torch.cat((states, backwards), -1)


def reversed_order(x: Tensor, padding_mask: Tensor | None) -> Tensor:
    """The index that reverses the tokens of each sequence and leaves its padding: B×T."""
    positions = torch.arange(x.size(1), device=x.device).expand(x.shape[:2])
    if padding_mask is None:
        return positions.flip(1)
    mirrored = (~padding_mask).sum(1, keepdim=True) - 1 - positions
    return torch.where(padding_mask, positions, mirrored)


def reorder(x: Tensor, order: Tensor) -> Tensor:
    """The tokens in another order; B×T×C, B×T."""
    return x.gather(1, order[:, :, None].expand_as(x))
