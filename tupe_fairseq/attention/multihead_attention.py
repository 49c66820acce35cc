"""Multihead self-attention whose positions come from an encoding."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from ..errors import ConfigurationError
from ..kernels.linear import is_plain, is_small, linear, project
from ..position import LayerTerms
from ..position.relative import RelativeVectors
from .backend import SharedAttention
from .cache import LayerCache
from .precision import products_in


class TupeMultiheadAttention(nn.Module):
    """Content projections, positional terms, one backend; batch first.

    score_ij = x_i W^Q (x_j W^K)ᵀ / √(score_terms·D) + terms of the encoding, which scales its own.
    Parameters have fairseq's names: q_proj, k_proj, v_proj, out_proj.

    Args:
        embed_dim: model width C.
        num_heads: heads H, a divisor of C.
        dropout: probability of dropping an attention weight.
        score_terms: `score_terms` of the encoding.
        layer_terms: what `build_layer_terms` of the encoding returned for this layer.

    Raises:
        ConfigurationError: num_heads does not divide embed_dim.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        score_terms: int = 1,
        layer_terms: LayerTerms | None = None,
    ):
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            raise ConfigurationError(
                f"num_heads must divide embed_dim {embed_dim}, but is {num_heads}."
            )
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.scaling = (score_terms * self.head_dim) ** -0.5
        self.dropout = dropout
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        self.layer_terms = layer_terms
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise as fairseq does: Xavier, with a gain of 1/√2 for q, k, v."""
        for proj in (self.q_proj, self.k_proj, self.v_proj):
            nn.init.xavier_uniform_(proj.weight, gain=2**-0.5)
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)

    def forward(
        self, x: Tensor, shared: SharedAttention, cache: LayerCache | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Attend.

        Args:
            x: B×T×C, or N×C where the layout of `shared` has taken padding out.
            shared: what `share_attention` prepared for this forward pass.
            cache: keys and values of earlier tokens in incremental decoding, to which those of x
                are added; None otherwise.

        Returns:
            The output, in the shape of x, and the attention weights, B×H×T×S, where `shared` asks
            for them.
        """
        assert shared.encoding is not None
        q, k, v = shared.encoding.rotate(*self._project(x, shared, cache), shared.start)
        terms = self.layer_terms
        if terms is not None and terms.uses("vectors"):
            q, k = _with_vectors(terms, shared.layout.to_attention(x), q, k, cache)
        if cache is not None:
            k, v = cache.append(k, v)
        if terms is not None:
            relative = None if cache is None else cache.relative
            x = shared.layout.to_attention(x) if terms.uses("content") else x
            shared = with_layer_terms(shared, terms, x, q, k, relative)
        dropout = self.dropout if self.training else 0.0
        out, weights = shared.backend.attend(q, k, v, shared, dropout)
        # B×H×T×D -> B×T×C -> N×C
        out = shared.layout.from_attention(out.transpose(1, 2).flatten(2))
        return project(out, self.out_proj), weights

    def _project(
        self, x: Tensor, shared: SharedAttention, cache: LayerCache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Scaled queries, keys and values, B×H×T×D each."""
        projections = self.q_proj, self.k_proj, self.v_proj
        if all(map(is_plain, projections)) and not (cache is None and is_small(x)):
            # One large product is faster than three.
            qkv = shared.layout.to_attention(linear(x, *self._joint(cache))).chunk(3, -1)
        else:
            q, k, v = (project(x, module) for module in projections)
            qkv = tuple(map(shared.layout.to_attention, (q * self.scaling, k, v)))
        # B×T×C -> B×H×T×D
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in qkv)
        return q, k, v

    def _joint(self, cache: LayerCache | None) -> tuple[Tensor, Tensor]:
        """Weight and bias of the three projections concatenated, 3C×C and 3C."""
        if cache is not None and cache.joint is not None:
            return cache.joint
        weight = (self.q_proj.weight * self.scaling, self.k_proj.weight, self.v_proj.weight)
        bias = (self.q_proj.bias * self.scaling, self.k_proj.bias, self.v_proj.bias)
        joint = torch.cat(weight), torch.cat(bias)
        if cache is not None:
            cache.joint = joint
        return joint


def _with_vectors(
    terms: LayerTerms, x: Tensor, q: Tensor, k: Tensor, cache: LayerCache | None
) -> tuple[Tensor, Tensor]:
    """Queries and keys with the dimensions that the layer's terms compute from x, B×T×C."""
    of_q, of_k, carried = terms.vectors(x, None if cache is None else cache.carried)
    if cache is not None:
        cache.carried = carried
    of_q, of_k = products_in(q.dtype, of_q, of_k)
    return torch.cat((q, of_q), -1), torch.cat((k, of_k), -1)


def with_layer_terms(
    shared: SharedAttention,
    terms: LayerTerms,
    x: Tensor,
    q: Tensor,
    k: Tensor,
    relative: RelativeVectors | None = None,
) -> SharedAttention:
    """`shared` with the terms of one layer.

    Args:
        shared: what layers share.
        terms: the layer's.
        x: input of attention, B×T×C.
        q: scaled queries, B×H×T×D; further dimensions are ignored.
        k: keys, B×H×S×D; further dimensions are ignored.
        relative: what `terms.relative` returned for this length or a longer one, if known.
    """
    content = None
    if terms.uses("relative") and relative is None:
        relative = terms.relative(shared.encoding, max(shared.start + q.size(2), k.size(2)))
    if terms.uses("content"):
        assert shared.encoding is not None
        width = shared.encoding.shape.head_dim
        q, k = q[..., :width], k[..., :width]
        content = terms.content(q, k, x, shared.encoding, shared.start)
    return replace(shared, relative=relative, content=content)
