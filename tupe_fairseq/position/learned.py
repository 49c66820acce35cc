"""Learned absolute positions (Gehring et al. 2017; Devlin et al. 2018): x_k + p_k at the input.

The paper's BERT-A and stock RoBERTa. In the scores it expands to four terms,
(x+p)_i W^Q ((x+p)_j W^K)ᵀ / √D, two of which correlate tokens with positions; TUPE removes these.
"""

from typing import Annotated

import torch
from torch import Tensor, nn

from .base import PositionEncoding, Shape, register_position_encoding
from .initial import random_vectors
from .tables import sinusoids

#: Root mean square of sinusoids as initial values: three times that of BERT's token embeddings.
START = 0.06


@register_position_encoding("learned")
class LearnedPosition(PositionEncoding):
    """A table of position embeddings, laid out as fairseq's so that state dicts exchange.

    fairseq counts positions from padding_idx + 1 = 2: position k lies in row k + 2, row 1 belongs
    to padding and row 0 to nothing.
    """

    first_row = 2

    def __init__(
        self,
        shape: Shape,
        *,
        from_sinusoids: Annotated[bool, "begin with sinusoids, not with random vectors"] = False,
    ):
        super().__init__(shape)
        self.from_sinusoids = from_sinusoids
        self.weight = random_vectors(self.shape.max_positions + self.first_row, shape.embed_dim)
        # The root mean square of sines and cosines is 1/√2.
        self._begin(START * 2**0.5)

    def enlarge(self) -> None:
        """Begin as large as positions in fairseq's transformers, where tokens have a factor √C.

        Random vectors have a norm of about 1, as fairseq's; sinusoids are not scaled, as those of
        `sinusoidal`.
        """
        nn.init.normal_(self.weight, std=self.shape.embed_dim**-0.5)
        self._begin(1.0)

    @torch.no_grad()
    def _begin(self, amplitude: float) -> None:
        """Set the row of padding to 0, and the others, if wanted, to sinusoids."""
        self.weight[self.first_row - 1].zero_()
        if self.from_sinusoids:
            rows = sinusoids(torch.arange(self.shape.max_positions), self.shape.embed_dim)
            self.weight[self.first_row :] = amplitude * rows

    def position_tables(self) -> dict[str, int]:
        return {"weight": self.first_row}

    def embed(
        self, x: Tensor, tokens: object = None, padding_mask: object = None, start: int = 0
    ) -> Tensor:
        first = self.first_row + start
        return x + self.weight[first : first + x.size(1)]
