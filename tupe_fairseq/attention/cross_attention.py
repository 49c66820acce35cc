"""Attention of a decoder over the output of the encoder."""

from torch import Tensor

from ..kernels.linear import project
from .backend import Backend, Feature, Prepared
from .eager import EAGER
from .layout import Layout
from .plan import choose_backend, dtype_of_queries
from .projections import Projections


class Source:
    """The output of the encoder, and what all layers share that attend to it.

    Args:
        vectors: B×S×C.
        padding_mask: B×S, True at padding; None without padding.
        backend: a registered name, or "auto".
    """

    def __init__(self, vectors: Tensor, padding_mask: Tensor | None = None, backend: str = "auto"):
        self.vectors = vectors
        self.padding_mask = padding_mask
        self.name = backend
        chosen = choose_backend(backend, {Feature.DECODER}, vectors.device.type)
        #: What all layers share.
        self.prepared = self.prepare(chosen)

    def prepare(self, backend: Backend) -> Prepared:
        """What layers share with this backend."""
        batch, length = self.vectors.shape[:2]
        layout = Layout(batch, length, self.padding_mask, other_queries=True)
        # The number of heads matters in self-attention only.
        inputs = backend.prepare(None, layout, 1, dtype_of_queries(self.vectors))
        return Prepared(backend, layout, inputs)

    def select(self, order: Tensor) -> "Source":
        """The source with sequence order[i] at place i."""
        mask = self.padding_mask
        mask = None if mask is None else mask.index_select(0, order)
        return Source(self.vectors.index_select(0, order), mask, self.name)


class CrossAttention(Projections):
    """Queries from the decoder, keys and values from the encoder; no positions.

    score_ij = x_i W^Q (y_j W^K)ᵀ / √D (Vaswani et al. 2017).
    """

    def project(self, source: Source) -> tuple[Tensor, Tensor]:
        """Keys and values of the source, B×H×S×D each."""
        keys = project(source.vectors, self.k_proj)
        values = project(source.vectors, self.v_proj)
        return self.per_head(keys), self.per_head(values)

    def forward(
        self,
        x: Tensor,
        source: Source,
        projected: tuple[Tensor, Tensor] | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend.

        Args:
            x: n·B×T×C; n consecutive hypotheses share one source sequence.
            source: the output of the encoder.
            projected: what `project` returned for it; computed here where None.
            need_weights: whether to return the attention weights; the backend is then `eager`.

        Returns:
            The output, n·B×T×C, and the weights, n·B×H×T×S, or None.
        """
        k, v = self.project(source) if projected is None else projected
        scaling = k.size(-1) ** -0.5
        # n·B×T×C -> B×n·T×C -> B×H×n·T×D
        q = self.per_head((project(x, self.q_proj) * scaling).view(len(k), -1, x.size(-1)))
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            prepared = source.prepare(EAGER)
            out, weights = EAGER.attend_with_weights(q, k, v, prepared, dropout)
            # B×H×n·T×S -> B×n×H×T×S -> n·B×H×T×S
            weights = weights.unflatten(2, (-1, x.size(1))).transpose(1, 2).flatten(0, 1)
        else:
            prepared = source.prepared
            out = prepared.backend.attend(q, k, v, prepared, dropout)
        # B×H×n·T×D -> n·B×T×C
        return project(out.transpose(1, 2).reshape(x.shape), self.out_proj), weights
