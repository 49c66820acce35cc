"""State of incremental decoding: keys and values of the layers, and positional terms."""

import torch
from torch import Tensor

from ..attention import LayerCache, Prepared, Source
from ..position import AttentionBias, PositionEncoding
from .layers import Layers

#: Positions whose terms are computed at the start; doubled when they are used up.
READY = 64


class DecoderCache:
    """The state of one generation.

    Args:
        encoding: the position encoding.
        layers: the layers of the decoder.

    Raises:
        ConfigurationError: the encoding does not decode token by token.
    """

    def __init__(self, encoding: PositionEncoding, layers: Layers):
        encoding.check_decoding()
        self.encoding = encoding
        self.model_layers = layers
        self.layers = [LayerCache() for _ in layers]
        #: Tokens so far.
        self.length = 0
        #: Vectors and ids of the last tokens, which the encoding reads before the next token.
        self.recent: tuple[Tensor, Tensor | None] | None = None
        self.source: Source | None = None
        #: Number of consecutive hypotheses that share a source sequence.
        self.beam = 1
        #: Positions whose terms are computed, and these terms by the first layer that has them.
        self.ready = 0
        self.biases: dict[int, AttentionBias | None] = {}

    def embed(self, x: Tensor, tokens: Tensor | None = None) -> Tensor:
        """Vectors of the next tokens and their positions, B×T×C; advances the length by T.

        Args:
            x: token vectors, B×T×C.
            tokens: their ids, B×T, where known.
        """
        count = x.size(1)
        earlier = 0
        if self.recent is not None:
            vectors, ids = self.recent
            earlier = vectors.size(1)
            x = torch.cat((vectors, x), 1)
            tokens = None if tokens is None or ids is None else torch.cat((ids, tokens), 1)
        kept = max(0, x.size(1) - self.encoding.context)
        self.recent = x[:, kept:], None if tokens is None else tokens[:, kept:]
        start = self.length - earlier
        self.length += count
        return self.encoding.embed(x, tokens, start=start)[:, -count:]

    def step(self, x: Tensor) -> list[Prepared]:
        """What each layer shares with others for the last token of each hypothesis.

        Args:
            x: input of the first layer, B×1×C, from what `embed` returned.
        """
        name = self.model_layers.config.attention_backend
        position = self.length - 1
        if self.length > self.ready:
            longer = max(READY, 2 * self.ready, self.length)
            self._make_ready(min(longer, self.encoding.shape.max_positions), x.device)
        return self.model_layers.shared(
            lambda plan: plan.prepare_step(
                self.encoding.at(plan.first), x, position, self.biases[plan.first], name
            )
        )

    def _make_ready(self, length: int, device: torch.device) -> None:
        """Compute positional terms of this many tokens; each step reads a row of them."""
        self.ready = length
        attentions = self.model_layers.attentions()
        for index, (plan, attention) in enumerate(
            zip(self.model_layers.plans, attentions, strict=True)
        ):
            encoding = self.encoding.at(index)
            if plan.first == index:
                self.biases[index] = plan.bias(encoding, length, device)
            terms = attention.layer_terms
            if terms is not None and terms.uses("relative"):
                self.layers[index].relative = terms.relative(encoding, length, attention)

    def attend_to(self, source: Source, beam: int) -> Source:
        """Store the source sequences, once for every `beam` consecutive hypotheses."""
        if self.source is None:
            self.source = source
            if beam > 1 and _repeats(source.vectors, beam):
                every = torch.arange(0, len(source.vectors), beam, device=source.vectors.device)
                self.source = source.select(every)
                self.beam = beam
        return self.source

    def reorder(self, order: Tensor) -> None:
        """Make hypothesis i what hypothesis order[i] was."""
        for layer in self.layers:
            layer.reorder(order)
        if self.recent is not None:
            vectors, ids = self.recent
            ids = None if ids is None else ids.index_select(0, order)
            self.recent = vectors.index_select(0, order), ids
        if self.source is None:
            return
        # The hypotheses of one sequence stay together.
        sequences = order[:: self.beam] // self.beam
        if not torch.equal(sequences.repeat_interleave(self.beam), order // self.beam):
            # There is no beam: fairseq does not reset the size that an earlier search has set.
            sequences = order // self.beam
            self.beam = 1
        if torch.equal(sequences, torch.arange(len(self.source.vectors), device=order.device)):
            return
        self.source = self.source.select(sequences)
        for layer in self.layers:
            layer.reorder_source(sequences)


def _repeats(x: Tensor, times: int) -> bool:
    """Whether each row of x occurs this many times in a row."""
    if len(x) % times:
        return False
    groups = x.unflatten(0, (-1, times))
    return torch.equal(groups, groups[:, :1].expand_as(groups))
