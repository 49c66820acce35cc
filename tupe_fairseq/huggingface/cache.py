"""Keys and values of earlier tokens, with which `generate` computes new tokens alone."""

from typing import Any

import torch
from torch import Tensor

from ..attention import Layout
from ..errors import ConfigurationError, DataError
from ..modules.decoder_cache import DecoderCache
from ..modules.encoder import Encoder, Observer


class TupeCache:
    """What transformers calls `past_key_values`, for texts without padding.

    The first tokens are computed together, later ones one after the other. As in fairseq's
    incremental decoding, positions are never drawn (`PositionEncoding.for_pass`).

    Args:
        encoder: a causal encoder.

    Raises:
        ConfigurationError: the encoding does not decode token by token.
    """

    #: `generate` compiles models whose caches are.
    is_compileable = False

    def __init__(self, encoder: Encoder):
        self.encoder = encoder
        self.cache = DecoderCache(encoder.embed_positions, encoder.layers)
        self.length = 0
        #: Word vectors and ids that the encoding reads before the next token.
        self.recent: tuple[Tensor, Tensor | None] | None = None

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """The number of tokens so far."""
        return self.length

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Make hypothesis i what hypothesis beam_idx[i] was."""
        self.cache.reorder(beam_idx)
        if self.recent is not None:
            words, tokens = self.recent
            tokens = None if tokens is None else tokens.index_select(0, beam_idx)
            self.recent = words.index_select(0, beam_idx), tokens

    def crop(self, *_: Any) -> None:
        """Called by assisted generation.

        Raises:
            ConfigurationError: always; sums over earlier tokens cannot be undone.
        """
        raise ConfigurationError(
            "a cache of this model cannot be shortened: assisted generation is not supported."
        )

    def extend(
        self,
        x: Tensor,
        tokens: Tensor | None = None,
        observe: Observer | None = None,
        backend: str | None = None,
    ) -> Tensor:
        """Encode the next tokens, and store their keys and values.

        Args:
            x: their word vectors, B×T×C.
            tokens: their ids, B×T, where known.
            observe: as in `Encoder.run`, for the first tokens and for each later token.
            backend: as in `Encoder.encode`.

        Raises:
            DataError: there are no tokens, or more than max_position_embeddings altogether.
        """
        if not x.size(1):
            raise DataError("past_key_values holds all given tokens already: give new ones.")
        self.encoder.check_length(self.length + x.size(1))
        width = 1 if self.length else x.size(1)
        ids = [None] * x.size(1) if tokens is None else tokens.split(width, 1)
        parts = zip(x.split(width, 1), ids, strict=False)
        return torch.cat([self._run(part, own, observe, backend) for part, own in parts], 1)

    def _run(
        self, x: Tensor, tokens: Tensor | None, observe: Observer | None, backend: str | None
    ) -> Tensor:
        """As `extend`, of the first tokens or of one later token."""
        encoder, positions = self.encoder, self.encoder.embed_positions
        start, layout = self.length, Layout(*x.shape[:2])
        x = encoder.normalise_and_drop(self._embed(x, tokens))
        if start:
            shared = self.cache.step(start, x, backend)
        else:
            shared = encoder.layers.share(positions, x, layout, backend=backend)
        self.length += x.size(1)
        return encoder.run(x, shared, layout, caches=self.cache.layers, observe=observe)[0]

    def _embed(self, x: Tensor, tokens: Tensor | None) -> Tensor:
        """Words and positions, of tokens that follow those so far."""
        count, earlier, positions = x.size(1), 0, self.encoder.embed_positions
        if self.recent is not None:
            words, ids = self.recent
            earlier, x = words.size(1), torch.cat((words, x), 1)
            tokens = None if tokens is None or ids is None else torch.cat((ids, tokens), 1)
        kept = max(0, x.size(1) - positions.context)
        self.recent = x[:, kept:], None if tokens is None else tokens[:, kept:]
        return positions.embed(x, tokens, start=self.length - earlier)[:, -count:]
