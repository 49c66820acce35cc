"""What one layer stores from one token to the next in incremental decoding."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..position.relative import RelativeVectors


@dataclass
class LayerCache:
    """Keys and values of one layer in one generation.

    Attributes:
        keys: of the tokens so far, rotated, B×H×S×E; None before the first.
        values: as keys, B×H×S×D.
        source: keys and values of the source sequences, B×H×S×D each; or None.
        relative: what `LayerTerms.relative` returned; or None.
    """

    keys: Tensor | None = None
    values: Tensor | None = None
    source: tuple[Tensor, Tensor] | None = None
    relative: RelativeVectors | None = None

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add keys and values of the next token; returns those of all tokens so far."""
        if self.keys is not None and self.values is not None:
            k = torch.cat((self.keys, k), 2)
            v = torch.cat((self.values, v), 2)
        self.keys = k
        self.values = v
        return k, v

    def reorder(self, order: Tensor) -> None:
        """Make hypothesis i what hypothesis order[i] was."""
        if self.keys is not None and self.values is not None:
            self.keys = self.keys.index_select(0, order)
            self.values = self.values.index_select(0, order)

    def reorder_source(self, order: Tensor) -> None:
        """Make source sequence i what sequence order[i] was."""
        if self.source is not None:
            keys, values = self.source
            self.source = keys.index_select(0, order), values.index_select(0, order)
