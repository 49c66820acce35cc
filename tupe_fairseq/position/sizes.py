"""What an encoding is built for: sizes of the model, and the options of every encoding."""

from dataclasses import dataclass

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
        ConfigurationError: an option is out of range.
    """

    embed_dim: int
    num_heads: int
    max_positions: int
    bidirectional: bool = True
    vocab_size: int | None = None
    num_layers: int = 1

    @property
    def head_dim(self) -> int:
        """Head width D."""
        return self.embed_dim // self.num_heads

    def window_at(self, layer: int) -> int | None:
        """The window of one layer, or None; layers count from 0."""
        is_global = self.global_every and layer % self.global_every == 0
        return None if is_global else self.attention_window
