"""Data-adaptive positions (Zheng et al. 2024, DAPE): a network corrects a bias by the scores.

score_ij = s_ij + b_ij + f(s_ij, b_ij) in the residual form of section 3, where s_ij = q_i·k_j / √D
and b_ij, the bias of another encoding (--dape-base), are vectors over the heads. f: 2H -> 32 -> H
with LeakyReLU belongs to a layer.

The authors' code is causal, with b_ij = 0 for keys on the right; here b is as in the other
encoding, in an encoder too.
"""

from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..base.errors import ConfigurationError
from .base import (
    POSITION_ENCODINGS,
    PositionEncoding,
    Shape,
    check_at_least,
    register_position_encoding,
)
from .bias import AttentionBias
from .dtypes import affine, dtype_of, widened, without_autocast
from .layer_terms import LayerTerms


class AdaptiveTerms(LayerTerms):
    """f of one layer."""

    def __init__(self, shape: Shape, width: int):
        super().__init__()
        self.fc1 = nn.Linear(2 * shape.num_heads, width)
        self.fc2 = nn.Linear(width, shape.num_heads)

    def content(self, q: Tensor, k: Tensor, x: Tensor, encoding: Any, start: int = 0) -> Tensor:
        bias = encoding.attention_bias(q.size(2), k.size(2), start).dense()
        dtype = torch.promote_types(widened(q.dtype), bias.dtype)
        scores, bias = (q @ k.mT).to(dtype), bias.to(dtype)
        # B×2H×T×S -> B×T×S×2H -> B×T×S×H -> B×H×T×S
        both = torch.cat((scores, bias.expand_as(scores)), 1).permute(0, 2, 3, 1)
        # Not in half precision: the bias at far distances is large.
        with without_autocast(x.device.type):
            hidden = F.leaky_relu(_widely(self.fc1, both))
            return _widely(self.fc2, hidden).permute(0, 3, 1, 2)


def _widely(layer: nn.Module, x: Tensor) -> Tensor:
    """``layer(x)``, computed in the dtype of x."""
    if dtype_of(layer) == x.dtype:
        return layer(x)
    return F.linear(x, *affine(layer, x.new_empty(x.size(-1))))


@register_position_encoding("dape")
class AdaptivePosition(PositionEncoding):
    """Shares the bias of another encoding, and has a network in each layer."""

    #: f of a hidden key can exceed 10,000.
    hidden_score = -1e9

    def __init__(
        self,
        shape: Shape,
        *,
        dape_base: Annotated[str, "encoding whose bias is corrected"] = "alibi",
        dape_width: Annotated[int, "width of the network"] = 32,
    ):
        super().__init__(shape)
        check_at_least("--dape-width", dape_width, 1)
        self.dape_width = dape_width
        if dape_base not in POSITION_ENCODINGS:
            raise ConfigurationError(
                f"--dape-base is {dape_base!r}, but there is no such encoding."
            )
        base = POSITION_ENCODINGS[dape_base]
        others = [hook for hook in ("embed", "rotate", "build_layer_terms") if base.uses(hook)]
        if base.uses("at") and not others:
            raise ConfigurationError(
                f"--dape-base is {dape_base!r}, but its bias differs between layers: choose one "
                "with the same bias in all layers, such as alibi, kerple_log or t5."
            )
        if (
            others
            or base.uses("weight_factor")
            or not base.uses("attention_bias")
            or base.score_terms > 1
        ):
            raise ConfigurationError(
                f"--dape-base is {dape_base!r}, but must be an encoding that adds a bias to the "
                "scores and nothing else, as alibi, kerple_log and t5 do."
            )
        self.base = base(shape)

    def attention_bias(self, queries: int, keys: int, start: int = 0) -> AttentionBias | None:
        return self.base.attention_bias(queries, keys, start)

    def build_layer_terms(self) -> AdaptiveTerms:
        return AdaptiveTerms(self.shape, self.dape_width)
