"""Convolution (Islam et al. 2020): x + grouped convolution over x, zero-padded.

The zeros beyond the ends carry information about position. One-sided encodings pad on the left
only, so that no token depends on a later one.
"""

from typing import Annotated

import torch.nn.functional as F
from torch import Tensor, nn

from ..base.errors import ConfigurationError
from .base import PositionEncoding, Shape, register_position_encoding


@register_position_encoding("cnn")
class CnnPosition(PositionEncoding):
    """A convolution at the input; padding tokens are zeros, as beyond the end."""

    def __init__(
        self,
        shape: Shape,
        *,
        cnn_kernel: Annotated[int, "kernel size of the convolution, odd"] = 31,
        cnn_groups: Annotated[int, "groups of channels, a divisor of the width"] = 16,
    ):
        super().__init__(shape)
        if cnn_kernel < 1 or cnn_kernel % 2 == 0:
            raise ConfigurationError(
                f"--cnn-kernel must be odd and positive, but is {cnn_kernel}."
            )
        if cnn_groups < 1 or shape.embed_dim % cnn_groups:
            raise ConfigurationError(
                f"--cnn-groups must divide the model width {shape.embed_dim}, but is {cnn_groups}."
            )
        self.conv = nn.Conv1d(shape.embed_dim, shape.embed_dim, cnn_kernel, groups=cnn_groups)
        sides = (cnn_kernel // 2, cnn_kernel // 2)
        self.padding = sides if shape.bidirectional else (cnn_kernel - 1, 0)
        self.context = self.padding[0]

    def embed(
        self, x: Tensor, tokens: object = None, padding_mask: Tensor | None = None, start: int = 0
    ) -> Tensor:
        tokens_only = x if padding_mask is None else x.masked_fill(padding_mask[:, :, None], 0)
        # B×T×C -> B×C×T -> B×T×C
        return x + self.conv(F.pad(tokens_only.transpose(1, 2), self.padding)).transpose(1, 2)
