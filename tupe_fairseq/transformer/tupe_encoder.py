"""TUPE as a plain torch module over vectors, without a dictionary and without fairseq.

Other encodings and layers: `build_position_encoding` and `transformer.stack.TransformerStack`.
"""

from dataclasses import dataclass
from typing import Any

from ..position import build_position_encoding
from .config import StackConfig
from .stack import TransformerStack


@dataclass
class TUPEConfig:
    """Configuration of a `TUPEEncoder`.

    Attributes:
        num_layers: layers L.
        num_heads: heads H, a divisor of d_model.
        d_model: width C.
        max_len: longest sequence.
        dropout: dropout of attention weights and block outputs.
        expansion_factor: feed-forward width / d_model.
        relative_bias: add T5's relative bias (TUPE-R); False gives TUPE-A.
        bidirectional_bias: buckets for keys on both sides; False: only for keys to the left.
        num_buckets: number of buckets of the relative bias.
        max_distance: distance from which all relative positions share a bucket.
        untie_cls: position 0 holds [CLS], and its positional correlations are reset. Unlike
            `--tie-cls`, the default is False: sequences of vectors need not begin with [CLS].
        attention_backend: "auto" or a registered backend.
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

    @property
    def d_head(self) -> int:
        """Width of one head, D."""
        return self.d_model // self.num_heads


class TUPEEncoder(TransformerStack):
    """The encoder of Ke et al. (ICLR 2021) over vectors.

    `encoder(x, padding_mask=None)`: B×T×C -> B×T×C; padding_mask is B×T, True at padding, which
    must be at the end of each row.

    Example:
        >>> encoder = TUPEEncoder(TUPEConfig())
        >>> encoder(torch.randn(8, 100, 128)).shape
        torch.Size([8, 100, 128])
    """

    def __init__(self, config: TUPEConfig):
        relative: dict[str, Any] = {
            "num_buckets": config.num_buckets,
            "max_distance": config.max_distance,
        }
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
            StackConfig(
                num_layers=config.num_layers,
                ffn_dim=config.expansion_factor * config.d_model,
                dropout=config.dropout,
                attention_dropout=config.dropout,
                attention_backend=config.attention_backend,
            ),
        )
        self.config = config
