"""The content-free part of the attention scores, kept factored until a backend needs it dense."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .indices import cls_cells, toeplitz


@dataclass(frozen=True)
class PositionalScore:
    """v_ij, the term that depends on positions alone: one for all layers and all sentences.

    v_ij = queries_i · keys_j + by_distance[j − i], after which, with [CLS] untied, row 0 becomes
    cls_row and column 0 of the other rows cls_column (Ke et al., ICLR 2021, section 3.2). Parts
    that an encoding does not have are None. All are fp32 or wider, since a bias rounded to half
    precision would be wrong alike in every layer.

    Attributes:
        num_keys: S.
        queries: H×T×D, scaled.
        keys: H×S×D.
        by_distance: H×(T+S−1), the value at distance d = j − i at index d + start + T − 1.
        cls_row: θ1, H.
        cls_column: θ2, H.
        start: position of the first query.
    """

    num_keys: int
    queries: Tensor | None = None
    keys: Tensor | None = None
    by_distance: Tensor | None = None
    cls_row: Tensor | None = None
    cls_column: Tensor | None = None
    start: int = 0

    def dense(self) -> Tensor:
        """The term as a tensor, H×T×S."""
        if self.queries is None:
            score = toeplitz(self.by_distance, self.num_keys)
        else:
            # H×T×D · H×D×S -> H×T×S
            score = self.queries @ self.keys.transpose(1, 2)
            if self.by_distance is not None:
                score = score + toeplitz(self.by_distance, self.num_keys)
        if self.cls_row is None:
            return score
        row, column = cls_cells(score.size(1), self.num_keys, self.start, score.device)
        score = score.where(~row, self.cls_row[:, None, None])
        return score.where(~column, self.cls_column[:, None, None])
