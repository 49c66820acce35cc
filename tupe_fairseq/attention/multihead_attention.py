"""Multihead self-attention whose positions come from an encoding."""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from ..kernels.linear import project, project_jointly
from ..position import LayerTerms
from .backend import Prepared
from .layer_cache import LayerCache
from .layout import Layout
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
        bias: whether the projections have one.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        score_terms: int = 1,
        layer_terms: LayerTerms | None = None,
        bias: bool = True,
    ):
        super().__init__(embed_dim, num_heads, embed_dim, dropout, bias)
        self.embed_dim = embed_dim
        self.head_dim = embed_dim // num_heads
        self.scaling = (score_terms * self.head_dim) ** -0.5
        self.layer_terms = layer_terms

    def forward(self, x: Tensor, prepared: Prepared, cache: LayerCache | None = None) -> Tensor:
        """Attend.

        Args:
            x: B×T×C, or N×C where the layout of `prepared` has taken padding out.
            prepared: what layers share in this forward pass.
            cache: keys and values of earlier tokens in incremental decoding, to which those of x
                are added; None otherwise.

        Returns:
            The shape of x.
        """
        encoding = prepared.encoding
        layout = prepared.layout
        terms = self.layer_terms
        assert encoding is not None
        if prepared.inputs.scales and self._scales_apart():
            prepared = replace(prepared, scale=self.scaling)
            q, k, v = (layout.per_head(each, self.num_heads) for each in self._products(x))
        else:
            q, k, v = self._project(x, layout)
        q, k, v = encoding.rotate(q, k, v, prepared.start)
        relative = None
        if terms is not None:
            q, k, v = terms.rotate(q, k, v, encoding, prepared.start)
        if cache is not None:
            k, v = cache.append(k, v)
            relative = cache.relative
        if relative is None and terms is not None and terms.uses("relative"):
            relative = terms.relative(encoding, layout.length, self)
        dropout = self.dropout if self.training else 0.0
        out = prepared.backend.attend(q, k, v, prepared, dropout, relative)
        # B×H×T×D -> B×T×C -> N×C
        return project(layout.from_attention(out.transpose(1, 2).flatten(2)), self.out_proj)

    def _project(self, x: Tensor, layout: Layout) -> tuple[Tensor, Tensor, Tensor]:
        """Scaled queries, keys and values, B×H×T×D each."""
        q, k, v = self._products(x)
        heads = self.num_heads
        return (
            layout.per_head(q * self.scaling, heads),
            layout.per_head(k, heads),
            layout.per_head(v, heads),
        )

    def _products(self, x: Tensor) -> Sequence[Tensor]:
        """Queries, keys and values, of the shape of x each."""
        if x.is_cpu:
            return project(x, self.q_proj), project(x, self.k_proj), project(x, self.v_proj)
        return project_jointly(x, (self.q_proj, self.k_proj, self.v_proj))

    def _scales_apart(self) -> bool:
        """Whether the queries can be left unscaled: nothing but the backend reads them."""
        is_own = type(self)._project is TupeMultiheadAttention._project
        return is_own and self.layer_terms is None
