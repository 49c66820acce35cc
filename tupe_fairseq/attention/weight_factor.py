"""What blocked attention multiplies weights by after the softmax (URPE)."""

import torch
from torch import Tensor

from ..position.indices import diagonal_sums, toeplitz
from .blocks import Block


class WeightFactor:
    """A factor by distance, in one forward or backward pass of a layer.

    Args:
        by_distance: H×(2T−1), the factor at distance d = j − i at index d + T − 1.
    """

    def __init__(self, by_distance: Tensor):
        self.by_distance = by_distance.detach()
        self.length = (by_distance.size(1) + 1) // 2
        self.gradient = torch.zeros_like(self.by_distance)

    def multiply_(self, block: Block, cells: Tensor) -> None:
        """Multiply a block's weights, M×R×S, in place."""
        values = toeplitz(self._part(block, self.by_distance), block.num_keys)
        cells.unflatten(0, (len(values), -1)).mul_(values[:, None])

    def backward_(self, block: Block, weights: Tensor, grad_product: Tensor) -> None:
        """Multiply the weights and sum the gradient, given that of the product, M×R×S."""
        part = self._part(block, self.gradient)
        product = (weights * grad_product).unflatten(0, (len(part), -1)).sum(1)
        part.add_(diagonal_sums(product))
        self.multiply_(block, weights)

    def _part(self, block: Block, by_distance: Tensor) -> Tensor:
        """The distances of a block, from its last query and first key on: G×(R+S−1)."""
        start = self.length - block.first - block.rows + block.first_key
        return by_distance[block.group.heads, start : start + block.rows + block.num_keys - 1]
