"""What incremental decoding keeps: keys and values, and the positional terms, which grow."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..attention import Layout
from ..attention.causal_attention import LayerCache, Step
from ..attention.cross_attention import Source
from ..position import LayerTerms, PositionalScore, PositionEncoding

#: Positions that are made ready at the start; doubled whenever they are used up.
READY = 64


class DecoderCache:
    """Of one generation.

    Args:
        encoding: the position encoding.
        terms: the encoding's terms in each layer.
    """

    def __init__(self, encoding: PositionEncoding, terms: Sequence[LayerTerms | None]):
        self.encoding = encoding
        self.terms = terms
        self.layers = [LayerCache() for _ in terms]
        self.source: Source | None = None
        #: Hypotheses that follow each other and share a source sentence.
        self.beam = 1
        self.ready = 0
        self.score: PositionalScore | None = None

    def step(self, batch: int, position: int) -> Step:
        """The next word of each hypothesis.

        Args:
            batch: hypotheses.
            position: of the word, below the encoding's max_positions.
        """
        if position >= self.ready:
            longer = max(READY, 2 * self.ready, position + 1)
            self._make_ready(min(longer, self.encoding.shape.max_positions))
        bias = None
        if self.score is not None:
            bias = self.score.rows(position, position + 1)[:, :, : position + 1]
        return Step(self.encoding, position, bias, Layout(batch, 1))

    def _make_ready(self, length: int) -> None:
        """Positional terms of so many words; each step reads a row of them."""
        self.ready = length
        self.score = self.encoding.score(length, length)
        for layer, terms in zip(self.layers, self.terms, strict=True):
            if terms is not None:
                layer.projected = terms.project(self.encoding, length)

    def attend_to(self, source: Source, beam: int) -> Source:
        """Keep the source sentences, each once where every `beam` hypotheses share one."""
        if self.source is None:
            self.source = source
            if beam > 1 and _repeats(source.vectors, beam):
                seen = None if source.seen is None else source.seen[::beam]
                self.source, self.beam = Source(source.vectors[::beam], seen), beam
        return self.source

    def reorder(self, order: Tensor) -> None:
        """Hypothesis i becomes what hypothesis order[i] was."""
        for layer in self.layers:
            if layer.keys is not None:
                layer.keys = layer.keys.index_select(0, order)
                layer.values = layer.values.index_select(0, order)
        if self.source is None:
            return
        # The hypotheses of one sentence stay together.
        sentences = order[:: self.beam] // self.beam
        if torch.equal(sentences, torch.arange(len(self.source.vectors), device=order.device)):
            return
        self.source = Source(
            self.source.vectors.index_select(0, sentences),
            None if self.source.seen is None else self.source.seen.index_select(0, sentences),
        )
        for layer in self.layers:
            if layer.source is not None:
                layer.source = tuple(part.index_select(0, sentences) for part in layer.source)


def _repeats(x: Tensor, times: int) -> bool:
    """Whether every row of x comes so many times, one after the other."""
    if len(x) % times:
        return False
    groups = x.unflatten(0, (-1, times))
    return torch.equal(groups, groups[:, :1].expand_as(groups))
