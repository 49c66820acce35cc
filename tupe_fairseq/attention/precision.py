"""Products of fp32 vectors as products of half-precision vectors, without their rounding error."""

import torch
from torch import Tensor

#: Parts of a number: three significands of bf16 (8 bits) hold that of fp32 (24 bits).
PARTS = 3


def products_in(dtype: torch.dtype, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Vectors in another dtype whose products are nearly those of the given ones.

    In half precision each number is split, x = x1 + x2 + x3, each part the rounding error of those
    before it. Six of the products of parts are kept; the others vanish in fp32. Gradients pass
    through the first parts, which are multiplied by all parts of the other number.

    Args:
        dtype: of the queries.
        q: B×H×T×E in fp32 or wider; in fp16 smaller than 65,504, as everything there.
        k: B×H×S×E.

    Returns:
        B×H×T×6E and B×H×S×6E in half precision; else the given vectors in that dtype.
    """
    if torch.finfo(dtype).bits >= 32:
        return q.to(dtype), k.to(dtype)
    q_parts, k_parts = _split(q, dtype), _split(k, dtype)
    kept = [(m, n) for m in range(PARTS) for n in range(PARTS - m)]
    return (
        torch.cat([q_parts[m] for m, _ in kept], -1),
        torch.cat([k_parts[n] for _, n in kept], -1),
    )


def _split(x: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """Parts of x in a narrower dtype; the first has its gradient, the others are constants."""
    parts = [x.to(dtype)]
    rest = x.detach()
    while len(parts) < PARTS:
        rest = rest - parts[-1].detach().to(rest.dtype)
        parts.append(rest.to(dtype))
    return parts
