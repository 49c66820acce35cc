"""ALiBi with slopes that depend on the query: score_ij − softplus(w_h · x_i) |i − j|."""

import torch
from torch import nn
from torch.nn import functional as F

from tupe_fairseq import PositionEncoding, register_position_encoding
from tupe_fairseq.position import LayerTerms
from tupe_fairseq.position.dtypes import widened


class TokenSlopes(LayerTerms):
    """The vectors w of one layer."""

    def __init__(self, shape):
        super().__init__()
        self.w = nn.Parameter(torch.empty(shape.num_heads, shape.embed_dim))
        nn.init.normal_(self.w, std=0.02)

    def content(self, q, k, x, encoding, start=0):
        # B×T×C -> B×H×T×1
        products = F.linear(x, self.w)
        slopes = F.softplus(products.to(widened(products.dtype))).transpose(1, 2)[..., None]
        queries = torch.arange(start, start + q.size(2), device=q.device)
        keys = torch.arange(k.size(2), device=q.device)
        return -slopes * (queries[:, None] - keys).abs()


@register_position_encoding("token_slopes")
class TokenSlopePosition(PositionEncoding):
    """A learned vector for each head of each layer."""

    def build_layer_terms(self):
        return TokenSlopes(self.shape)
