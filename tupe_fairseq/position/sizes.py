"""What an encoding is built for: sizes of the model, and the options of every encoding."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..base.errors import ConfigurationError
from .model_options import ModelOptions


@dataclass(frozen=True)
class Shape(ModelOptions):
    """Sizes of the model that an encoding is built for; keyword-only, the options of every one.

    Attributes:
        embed_dim: model width C.
        num_heads: heads H.
        max_positions: longest sequence, in tokens.
        bidirectional: whether queries attend to keys on their right. One-sided encodings have
            parameters for keys on the left only.
        vocab_size: V, for encodings with a position function per token.
        num_layers: layers L, for encodings with parameters in each layer.

    Raises:
        ConfigurationError: an option is out of range, or an encoder cannot have it.
    """

    embed_dim: int
    num_heads: int
    max_positions: int
    bidirectional: bool = True
    vocab_size: int | None = None
    num_layers: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        floor = self.log_scaling_floor
        if self.bidirectional and floor is not None:
            raise ConfigurationError(
                f"--log-scaling-floor is {floor}, but it is for decoders, where the number of "
                "visible tokens depends on the position: leave it out."
            )

    @property
    def head_dim(self) -> int:
        """Head width D."""
        return self.embed_dim // self.num_heads

    def window_at(self, layer: int) -> int | None:
        """The window of one layer, or None; layers count from 0."""
        is_global = self.global_every and layer % self.global_every == 0
        return None if is_global else self.attention_window

    def temperature(
        self, start: int, stop: int, window: int | None, device: torch.device
    ) -> Tensor | None:
        """Factors of the scores of queries start, ..., stop − 1, T×1 in fp64; or None.

        In layers without a window, those of query i are multiplied by 1 + α ln max(1, (i+1)/n)
        (Inkling, 2026). A window limits the tokens that a query sees.
        """
        if self.log_scaling_floor is None or window is not None:
            return None
        seen = torch.arange(start + 1, stop + 1, dtype=torch.float64, device=device)
        logarithm = (seen / self.log_scaling_floor).clamp(min=1.0).log()
        return 1 + self.log_scaling_alpha * logarithm[:, None]
