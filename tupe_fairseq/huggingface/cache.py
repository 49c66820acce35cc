"""The KV cache of `generate`: keys and values of earlier tokens."""

from typing import Any

from torch import Tensor
from transformers.modeling_outputs import CausalLMOutputWithPast

from ..errors import ConfigurationError
from ..modules.decoding import DecoderCache

#: The name of the cache in `generate` and in outputs; `cache` since transformers 5.24.
NAME = "cache" if "cache" in CausalLMOutputWithPast.__dataclass_fields__ else "past_key_values"


class TupeCache(DecoderCache):
    """What transformers calls `cache`, or `past_key_values`, for texts without padding."""

    #: `generate` compiles models whose caches are.
    is_compileable = False
    #: Since transformers 5.24: whether the layers store sums alone, and whether `crop` works.
    is_linear, is_croppable = (False,), False

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
