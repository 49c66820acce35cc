"""Attention of a decoder over the output of the encoder."""

from torch import Tensor, nn

from ..kernels.linear import project
from .backend import ATTENTION_BACKENDS, Feature, SharedAttention
from .choice import choose_backend, dtype_of_queries
from .layout import Layout


class Source:
    """The output of the encoder, and what all layers share that attend to it.

    Args:
        vectors: B×S×C.
        padding_mask: B×S, True at padding; None without padding.
        backend: a registered name, or "auto".
    """

    def __init__(self, vectors: Tensor, padding_mask: Tensor | None = None, backend: str = "auto"):
        self.vectors, self.padding_mask, self.name = vectors, padding_mask, backend
        self._chosen = choose_backend(backend, {Feature.OTHER_QUERIES}, vectors.device.type)
        self._shared: dict[bool, SharedAttention] = {}

    def shared(self, heads: int, need_weights: bool) -> SharedAttention:
        """What all layers share, computed once; only `eager` returns the weights."""
        if need_weights not in self._shared:
            backend = ATTENTION_BACKENDS["eager"] if need_weights else self._chosen
            batch, length = self.vectors.shape[:2]
            layout = Layout(batch, length, self.padding_mask, other_queries=True)
            prepared = backend.prepare(None, layout, heads, dtype_of_queries(self.vectors))
            self._shared[need_weights] = SharedAttention(
                backend, layout, prepared, need_weights=need_weights
            )
        return self._shared[need_weights]

    def select(self, order: Tensor) -> "Source":
        """The source with sequence order[i] at place i."""
        mask = self.padding_mask
        mask = None if mask is None else mask.index_select(0, order)
        return Source(self.vectors.index_select(0, order), mask, self.name)


class CrossAttention(nn.Module):
    """Queries from the decoder, keys and values from the encoder; no positions.

    score_ij = x_i W^Q (y_j W^K)ᵀ / √D (Vaswani et al. 2017). Parameters have fairseq's names.

    Args:
        embed_dim: width of the decoder C.
        num_heads: heads H, a divisor of C.
        source_dim: width of the encoder.
        dropout: probability of dropping an attention weight.
    """

    def __init__(self, embed_dim: int, num_heads: int, source_dim: int, dropout: float = 0.0):
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        self.scaling = (embed_dim // num_heads) ** -0.5
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(source_dim, embed_dim)
        self.v_proj = nn.Linear(source_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        # As fairseq does, with a gain of 1/√2 where q, k and v have the same shape.
        gain = 2**-0.5 if source_dim == embed_dim else 1.0
        for proj in (self.q_proj, self.k_proj, self.v_proj):
            nn.init.xavier_uniform_(proj.weight, gain=gain)
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)

    def project(self, source: Source) -> tuple[Tensor, Tensor]:
        """Keys and values of the source, B×H×S×D each."""
        keys, values = (project(source.vectors, p) for p in (self.k_proj, self.v_proj))
        return self._per_head(keys), self._per_head(values)

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
            need_weights: whether to return the attention weights.

        Returns:
            The output, n·B×T×C, and the weights, n·B×H×T×S, or None.
        """
        k, v = self.project(source) if projected is None else projected
        # n·B×T×C -> B×n·T×C -> B×H×n·T×D
        q = self._per_head((project(x, self.q_proj) * self.scaling).view(len(k), -1, x.size(-1)))
        shared = source.shared(self.num_heads, need_weights)
        dropout = self.dropout if self.training else 0.0
        out, weights = shared.backend.attend(q, k, v, shared, dropout)
        # B×H×n·T×D -> n·B×T×C
        out = project(out.transpose(1, 2).reshape(x.shape), self.out_proj)
        return out, None if weights is None else self._per_hypothesis(weights, x)

    def _per_hypothesis(self, weights: Tensor, x: Tensor) -> Tensor:
        # B×H×n·T×S -> B×n×H×T×S -> n·B×H×T×S
        by_hypothesis = weights.unflatten(2, (-1, x.size(1))).transpose(1, 2)
        return by_hypothesis.flatten(0, 1)

    def _per_head(self, x: Tensor) -> Tensor:
        # B×S×C -> B×H×S×D
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
