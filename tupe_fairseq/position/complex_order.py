"""Complex-valued word order (Wang et al. 2020): tokens are complex functions of their position.

Equation 9: r_j ⊙ exp(i (ω_j k + θ_j)) for token j at position k. The amplitude r_j is the token
embedding; frequency ω_j and phase θ_j are vectors of each token. A learned matrix projects real
and imaginary part to the model width; the paper's network stays complex.
"""

import torch
from torch import Tensor, nn

from ..base.errors import ConfigurationError
from .base import PositionEncoding, Shape, register_position_encoding
from .dtypes import widened

NEEDS_TOKENS = "complex_order needs token ids: it cannot encode vectors alone."


@register_position_encoding("complex_order")
class ComplexOrderPosition(PositionEncoding):
    """x_k := [r cos(ωk + θ) ; r sin(ωk + θ)] W.

    Frequencies start as the sinusoidal ones, of which the paper's encoding is the generalisation,
    and phases at 0. Extra parameters: 2·V·C + 2·C².
    """

    token_tables = ("frequency", "phase")

    def __init__(self, shape: Shape):
        super().__init__(shape)
        if shape.vocab_size is None:
            raise ConfigurationError(NEEDS_TOKENS)
        width = shape.embed_dim
        frequencies = 10000 ** (-torch.arange(width) / width)
        self.frequency = nn.Parameter(frequencies.repeat(shape.vocab_size, 1))
        self.phase = nn.Parameter(torch.zeros(shape.vocab_size, width))
        self.readout = nn.Linear(2 * width, width, bias=False)

    def embed(
        self, x: Tensor, tokens: Tensor | None = None, padding_mask: object = None, start: int = 0
    ) -> Tensor:
        if tokens is None:
            raise ConfigurationError(NEEDS_TOKENS)
        positions = torch.arange(start, start + x.size(1), device=x.device)
        return self._wave(x, positions, self.frequency[tokens], self.phase[tokens])

    def position_vectors(self, length: int) -> Tensor:
        """The vectors of an average token of amplitude 1."""
        frequency = self.frequency.mean(0)
        phase = self.phase.mean(0)
        positions = torch.arange(length, device=phase.device)
        return self._wave(torch.ones_like(phase), positions, frequency, phase)

    def _wave(self, x: Tensor, positions: Tensor, frequency: Tensor, phase: Tensor) -> Tensor:
        """The projected waves at T positions: B×T×C, or T×C for one token, whose x is C."""
        # Not in half precision, which cannot represent large angles; --fp16 and --bf16 still round
        # ω and θ. (B×)T×C · T×1
        dtype = widened(x.dtype)
        angle = frequency.to(dtype) * positions[:, None] + phase.to(dtype)
        return self.readout(torch.cat((x * angle.cos(), x * angle.sin()), -1).to(x.dtype))
