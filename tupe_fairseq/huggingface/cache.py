"""The KV cache of `generate`: keys and values of earlier tokens."""

from typing import Any

from torch import Tensor

from ..errors import ConfigurationError
from ..modules.decoding import DecoderCache


class TupeCache(DecoderCache):
    """What transformers calls `past_key_values`, for texts without padding."""

    #: `generate` compiles models whose caches are.
    is_compileable = False

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """The number of tokens so far."""
        return self.length

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Make hypothesis i what hypothesis beam_idx[i] was."""
        self.reorder(beam_idx)

    def crop(self, *_: Any) -> None:
        """Called by assisted generation.

        Raises:
            ConfigurationError: always; sums over earlier tokens cannot be undone.
        """
        raise ConfigurationError(
            "a cache of this model cannot be shortened: assisted generation is not supported."
        )
