"""Multihead self-attention whose positions come from an encoding."""

import torch
from torch import Tensor

from ..kernels.linear import project
from ..position import LayerTerms
from ..position.relative import RelativeVectors
from .backend import SharedAttention
from .cache import LayerCache
from .precision import products_in
from .projections import Projections


class TupeMultiheadAttention(Projections):
    """Content projections, positional terms, one backend; batch first.

    score_ij = x_i W^Q (x_j W^K)ᵀ / √(score_terms·D) + terms of the encoding, which scales its own.

    Args:
        embed_dim: model width C.
        num_heads: heads H, a divisor of C.
        dropout: probability of dropping an attention weight.
        score_terms: `score_terms` of the encoding.
        layer_terms: what `build_layer_terms` of the encoding returned for this layer.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        score_terms: int = 1,
        layer_terms: LayerTerms | None = None,
    ):
        super().__init__(embed_dim, num_heads, embed_dim, dropout)
        self.embed_dim = embed_dim
        self.head_dim = embed_dim // num_heads
        self.scaling = (score_terms * self.head_dim) ** -0.5
        self.layer_terms = layer_terms

    def forward(
        self, x: Tensor, shared: SharedAttention, cache: LayerCache | None = None
    ) -> Tensor:
        """Attend.

        Args:
            x: B×T×C, or N×C where the layout of `shared` has taken padding out.
            shared: what `share_attention` prepared for this forward pass.
            cache: keys and values of earlier tokens in incremental decoding, to which those of x
                are added; None otherwise.

        Returns:
            The shape of x.
        """
        assert shared.encoding is not None
        q, k, v = shared.encoding.rotate(*self._project(x, shared), shared.start)
        terms = self.layer_terms
        if terms is not None:
            q, k, v = terms.rotate(q, k, v, shared.encoding, shared.start)
        if terms is not None and terms.uses("vectors"):
            q, k = _with_vectors(terms, shared.layout.to_attention(x), q, k, cache)
        if cache is not None:
            k, v = cache.append(k, v)
        if terms is not None:
            relative = None if cache is None else cache.relative
            if terms.uses("content") or terms.uses("relative_queries"):
                x = shared.layout.to_attention(x)
            shared = with_layer_terms(shared, terms, x, q, k, relative, self)
        dropout = self.dropout if self.training else 0.0
        out = shared.backend.attend(q, k, v, shared, dropout)
        # B×H×T×D -> B×T×C -> N×C
        return project(shared.layout.from_attention(out.transpose(1, 2).flatten(2)), self.out_proj)

    def _project(self, x: Tensor, shared: SharedAttention) -> tuple[Tensor, Tensor, Tensor]:
        """Scaled queries, keys and values, B×H×T×D each."""
        q, k, v = (project(x, each) for each in (self.q_proj, self.k_proj, self.v_proj))
        in_batch = map(shared.layout.to_attention, (q * self.scaling, k, v))
        q, k, v = map(self.per_head, in_batch)
        return q, k, v


def _with_vectors(
    terms: LayerTerms, x: Tensor, q: Tensor, k: Tensor, cache: LayerCache | None
) -> tuple[Tensor, Tensor]:
    """Queries and keys with the dimensions that the layer's terms compute from x, B×T×C."""
    own_q, own_k, carried = terms.vectors(x, None if cache is None else cache.carried)
    if cache is not None:
        cache.carried = carried
    own_q, own_k = products_in(q.dtype, own_q, own_k)
    return torch.cat((q, own_q), -1), torch.cat((k, own_k), -1)


def with_layer_terms(
    shared: SharedAttention,
    terms: LayerTerms,
    x: Tensor,
    q: Tensor,
    k: Tensor,
    relative: RelativeVectors | None = None,
    attention: Projections | None = None,
) -> SharedAttention:
    """`shared` with the terms of one layer.

    Args:
        shared: what layers share.
        terms: the layer's.
        x: input of attention, B×T×C.
        q: scaled queries, B×H×T×D; further dimensions are ignored.
        k: keys, B×H×S×D; further dimensions are ignored.
        relative: what `terms.relative` returned for this length or a longer one, if known.
        attention: of the layer, where its terms share its projections.
    """
    assert shared.encoding is not None
    content = None
    if terms.uses("relative") and relative is None:
        length = max(shared.start + q.size(2), k.size(2))
        relative = terms.relative(shared.encoding, length, attention)
    if relative is not None:
        # Written out, here and below: torch.compile of torch 2.6 cannot trace `replace`.
        vectors = relative.for_queries, relative.for_keys, relative.for_values
        biases, queries = (relative.query_bias, relative.key_bias), terms.relative_queries(x)
        relative = RelativeVectors(*vectors, *biases, queries)
    if terms.uses("content"):
        width = shared.encoding.shape.head_dim
        content = terms.content(q[..., :width], k[..., :width], x, shared.encoding, shared.start)
    seen = shared.backend, shared.layout, shared.prepared, shared.encoding, shared.start
    return SharedAttention(*seen, relative, content, shared.temperature)
