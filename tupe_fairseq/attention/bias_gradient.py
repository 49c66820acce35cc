"""The gradient of what positions add to the scores, in blocked attention."""

from dataclasses import replace

import torch
from torch import Tensor

from ..position.bias import AttentionBias
from .blocks import Block


class BiasGradient:
    """The gradient of the bias, summed over blocks; never B×H×T×T."""

    def __init__(self, bias: AttentionBias):
        self.leaves = {name: part.detach() for name, part in bias.parts().items()}
        self.sums = {name: torch.zeros_like(part) for name, part in self.leaves.items()}
        self.bias = bias

    def grad_rows(self, block: Block) -> Tensor:
        """Where to sum the gradient of `Block.rows_of`, H×R×S."""
        if "cells" in self.sums and not block.cls_in_front:
            return block.rows_of(replace(self.bias, cells=self.sums["cells"]))
        return torch.zeros_like(block.rows_of(self.bias))

    def add_rows(self, block: Block, gradient: Tensor) -> None:
        """Add the gradient of these rows to the parts from which they are computed."""
        if "cells" in self.sums:
            if not block.cls_in_front:
                return  # `gradient` is a view of the sums.
            rows = self.sums["cells"][:, block.first : block.first + block.rows]
            for columns, keys in block.spans:
                rows[..., keys] += gradient[..., columns]
            return
        leaves = {name: leaf.requires_grad_() for name, leaf in self.leaves.items()}
        with torch.enable_grad():
            rows = block.rows_of(replace(self.bias, **leaves))
        gradients = torch.autograd.grad(rows, tuple(leaves.values()), gradient)
        for total, part in zip(self.sums.values(), gradients, strict=True):
            total += part
