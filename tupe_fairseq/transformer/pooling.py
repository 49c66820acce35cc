"""One vector for each sequence."""

from torch import Tensor


def mean_of_tokens(vectors: Tensor, mask: Tensor) -> Tensor:
    """The mean over the tokens: B×T×C and a mask B×T, 0 at padding -> B×C; without tokens, 0."""
    shown = mask.ne(0)
    # Vectors at padding have no meaning, and may not be finite.
    total = vectors.masked_fill(~shown[..., None], 0).sum(1)
    return total / shown.sum(1, keepdim=True).clamp(min=1).to(total.dtype)
