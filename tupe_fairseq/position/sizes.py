"""What an encoding is built for: sizes of the model, and the window of its attention."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import ConfigurationError


@dataclass(frozen=True)
class Shape:
    """Sizes of the model that an encoding is built for.

    Attributes:
        embed_dim: model width C.
        num_heads: heads H.
        max_positions: longest sequence, in tokens.
        bidirectional: whether queries attend to keys on their right. One-sided encodings have
            parameters for keys on the left only.
        vocab_size: V, for encodings with a position function per token.
        num_layers: layers L, for encodings with parameters in each layer.
        window: largest distance |i − j| at which tokens of local layers attend to each other; None
            for no limit. An untied [CLS] is visible to all tokens and sees all, as a global token
            does (Beltagy et al. 2020, Longformer).
        global_every: with N, the layers 0, N, 2N, ... have no window, as ModernBERT's (Warner
            2024) with N = 3; with 0, every layer has the window.
        extension: value of --extend-positions, or None.
        log_scaling_floor: tokens n that a query must see for its scores to be scaled; or None.
        log_scaling_alpha: how much they are scaled.

    Raises:
        ConfigurationError: the window is too small, or it is not clear which layers have it; or
            scores cannot be scaled so.
    """

    embed_dim: int
    num_heads: int
    max_positions: int
    bidirectional: bool = True
    vocab_size: int | None = None
    num_layers: int = 1
    window: int | None = None
    global_every: int = 0
    extension: str | None = None
    log_scaling_floor: int | None = None
    log_scaling_alpha: float = 0.1

    def __post_init__(self) -> None:
        window, every, floor = self.window, self.global_every, self.log_scaling_floor
        if window is not None and window < 1:
            raise ConfigurationError(
                f"--attention-window is {window}, but must be at least 1 (the neighbours of a "
                "token): leave it out for no window."
            )
        if every < 0 or every == 1:
            raise ConfigurationError(
                f"--global-every is {every}, but must be at least 2, or 0 for no global layer: "
                "leave out --attention-window if all layers are to be global."
            )
        if every and window is None:
            raise ConfigurationError(
                f"--global-every is {every}, but without --attention-window all layers are "
                "global: give both, or none."
            )
        if floor is not None and floor < 1:
            raise ConfigurationError(
                f"--log-scaling-floor is {floor}, but must be at least 1, the tokens from which "
                "on scores are scaled: leave it out for no scaling."
            )
        if not 0 <= self.log_scaling_alpha < math.inf:
            raise ConfigurationError(
                "--log-scaling-alpha must be a number of at least 0, but is "
                f"{self.log_scaling_alpha}."
            )
        if self.bidirectional and floor is not None:
            raise ConfigurationError(
                f"--log-scaling-floor is {floor}, but scales scores by the number of tokens that "
                "a query sees, and in an encoder it sees all: leave it out."
            )

    @property
    def head_dim(self) -> int:
        """Head width D."""
        return self.embed_dim // self.num_heads

    def window_at(self, layer: int) -> int | None:
        """The window of one layer, or None; layers count from 0."""
        return None if self.global_every and layer % self.global_every == 0 else self.window

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
