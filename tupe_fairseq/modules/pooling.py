"""One vector for each sequence."""

from torch import Tensor


def mean_of_tokens(vectors: Tensor, mask: Tensor) -> Tensor:
    """The mean over the tokens: B×T×C and a mask B×T, 1 at tokens -> B×C."""
    # Vectors at padding have no meaning, and may not be finite.
    total = vectors.masked_fill(mask[..., None].eq(0), 0).sum(1)
    return total / mask.sum(1, keepdim=True).clamp(min=1).to(total.dtype)
