"""TUPE as a plain torch module: vectors in, vectors out; no dictionary, no fairseq arguments."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from ..errors import UsageError
from ..modules.encoder import Encoder
from ..position import build_position_encoding

#: What `TUPEConfig.activation` can be.
ACTIVATIONS = {"gelu": F.gelu, "relu": F.relu, "tanh": torch.tanh}


@dataclass
class TUPEConfig:
    """Shape of a `TUPEEncoder`.

    Attributes:
        num_layers: layers L.
        num_heads: heads H, a divisor of d_model.
        d_model: width C.
        max_len: longest sequence.
        dropout: on attention weights and block outputs.
        expansion_factor: feed-forward width / d_model.
        relative_bias: TUPE-R; False is TUPE-A.
        bidirectional_bias: buckets on both sides; False spends all on keys to the left.
        num_buckets: of the relative bias.
        max_distance: from which on relative positions share a bucket.
        untie_cls: position 0 holds [CLS], whose positional correlations are reset.
        attention_backend: "auto" or a registered backend.
        layernorm_embedding: LayerNorm on the input, as BERT has.
        normalize_before: pre-LN layers and a final LayerNorm.
        activation: in the feed-forward block: "gelu", "relu", "tanh".
    """

    num_layers: int = 6
    num_heads: int = 8
    d_model: int = 128
    max_len: int = 256
    dropout: float = 0.1
    expansion_factor: int = 1
    relative_bias: bool = True
    bidirectional_bias: bool = True
    num_buckets: int = 32
    max_distance: int = 128
    untie_cls: bool = False
    attention_backend: str = "auto"
    layernorm_embedding: bool = False
    normalize_before: bool = False
    activation: str = "gelu"

    def __post_init__(self):
        if self.num_heads < 1 or self.d_model % self.num_heads:
            raise UsageError(
                f"num_heads must divide d_model {self.d_model}, but is {self.num_heads}."
            )
        if self.activation not in ACTIVATIONS:
            raise UsageError(
                f"activation is {self.activation!r}, but must be one of: {', '.join(ACTIVATIONS)}."
            )

    @property
    def d_head(self) -> int:
        """Width of one head, D."""
        return self.d_model // self.num_heads


class TUPEEncoder(Encoder):
    """The encoder of Ke et al. (ICLR 2021) over vectors.

    `encoder(x, padding_mask=None)`: B×T×C -> B×T×C; padding_mask is B×T, True at padding.

    Example:
        >>> encoder = TUPEEncoder(TUPEConfig())
        >>> encoder(torch.randn(8, 100, 128)).shape
        torch.Size([8, 100, 128])
    """

    def __init__(self, config: TUPEConfig):
        relative = {"num_buckets": config.num_buckets, "max_distance": config.max_distance}
        positions = build_position_encoding(
            "tupe_r" if config.relative_bias else "tupe_a",
            config.d_model,
            config.num_heads,
            config.max_len,
            config.bidirectional_bias,
            tie_cls=not config.untie_cls,
            **(relative if config.relative_bias else {}),
        )
        super().__init__(
            positions,
            num_layers=config.num_layers,
            ffn_dim=config.expansion_factor * config.d_model,
            activation_fn=ACTIVATIONS[config.activation],
            dropout=config.dropout,
            attention_dropout=config.dropout,
            normalize_before=config.normalize_before,
            layernorm_embedding=config.layernorm_embedding,
            attention_backend=config.attention_backend,
        )
        self.config = config
