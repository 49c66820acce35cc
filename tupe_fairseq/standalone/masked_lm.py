"""A trained TUPE as a plain torch module: token ids in, hidden states and logits out.

Loads the directories that `scripts/convert_checkpoint.py --to standalone` writes: config.json,
model.safetensors, dict.txt.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import CheckpointError, UsageError
from .encoder import ACTIVATIONS, TUPEConfig, TUPEEncoder
from .files import check_fit, read_config, read_tensors

FORMAT = "tupe_fairseq standalone 1"


class MaskedWordHead(nn.Module):
    """RoBERTa's head for masked words: C -> C, activation, LayerNorm, then a logit per word."""

    def __init__(self, width: int, words: Tensor, activation: str):
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.layer_norm = nn.LayerNorm(width)
        self.weight = words
        self.bias = nn.Parameter(words.new_zeros(len(words)))
        self.activation_fn = ACTIVATIONS[activation]

    def forward(self, hidden: Tensor) -> Tensor:
        """B×T×C -> B×T×V."""
        x = self.layer_norm(self.activation_fn(self.dense(hidden)))
        return F.linear(x, self.weight, self.bias)


class TUPEMaskedLM(nn.Module):
    """Word embeddings, `TUPEEncoder`, head for masked words.

    Args:
        config: configuration of the encoder.
        vocab_size: number of words V.
        padding_idx: id of padding, which must be at the end of each row.
        tied: the head uses the word embeddings as its weight.

    Example:
        >>> model = TUPEMaskedLM.from_pretrained("directory")
        >>> hidden, logits = model(tokens)
    """

    def __init__(
        self, config: TUPEConfig, vocab_size: int, padding_idx: int = 1, tied: bool = True
    ):
        super().__init__()
        self.padding_idx = padding_idx
        self.embed_tokens = nn.Embedding(vocab_size, config.d_model, padding_idx)
        self.encoder = TUPEEncoder(config)
        words = self.embed_tokens.weight
        head = words if tied else nn.Parameter(words.detach().clone())
        self.lm_head = MaskedWordHead(config.d_model, head, config.activation)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Ids B×T -> hidden states B×T×C and logits B×T×V; values at padding have no meaning.

        Raises:
            UsageError: more tokens than positions, or padding before a token.
        """
        padding_mask = tokens.eq(self.padding_idx)
        hidden = self.encoder(self.embed_tokens(tokens), padding_mask)
        return hidden, self.lm_head(hidden)

    def settings(self) -> dict[str, Any]:
        """Contents of config.json."""
        return {
            "format": FORMAT,
            "encoder": asdict(self.encoder.config),
            "vocab_size": self.embed_tokens.num_embeddings,
            "padding_idx": self.padding_idx,
            "tied": self.lm_head.weight is self.embed_tokens.weight,
        }

    @classmethod
    def from_pretrained(cls, directory: str | Path) -> "TUPEMaskedLM":
        """Load a directory, in eval mode.

        Raises:
            UsageError: a file is missing or does not fit; the message names it.
        """
        path = Path(directory, "config.json")
        settings = _read_settings(path)
        tensors = read_tensors(path.with_name("model.safetensors"))
        layers = {name.split(".")[2] for name in tensors if name.startswith("encoder.layers.")}
        try:
            config = TUPEConfig(**settings.pop("encoder"))
            if config.num_layers != len(layers):
                raise CheckpointError(
                    f"invalid num_layers in {path}: {config.num_layers}; model.safetensors has "
                    f"{len(layers)} layers."
                )
            # Sizes in the file may be wrong; tensors on this device take no memory.
            with torch.device("meta"):
                expected = cls(config, **settings).state_dict()
        except UsageError:
            raise
        # Values of unexpected types can raise any error.
        except Exception as error:
            raise CheckpointError(f"invalid settings in {path}: {error}.") from error
        check_fit(tensors, expected, path.with_name("model.safetensors"), "standalone")
        model = cls(config, **settings)
        model.load_state_dict(tensors)
        return model.eval()


def _read_settings(path: Path) -> dict[str, Any]:
    """Contents of config.json without `format`.

    Raises:
        CheckpointError: the file cannot be read, or has another format.
    """
    settings = read_config(path)
    if settings.pop("format", None) != FORMAT:
        raise CheckpointError(f"invalid format in {path}: it is not {FORMAT!r}.")
    return settings
