"""A trained TUPE as a plain torch module: ids in, hidden states and logits out; no fairseq.

Loads what `scripts/convert_checkpoint.py --to standalone` wrote: config.json, model.safetensors,
dict.txt.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import UsageError
from ..interop.keys import check_fit
from ..interop.tensors import read_tensors
from .encoder import ACTIVATIONS, TUPEConfig, TUPEEncoder

FORMAT = "tupe_fairseq standalone 1"
#: Characters of config.json; a longer file is none.
LONGEST_CONFIG = 1 << 16


class MaskedWordHead(nn.Module):
    """RoBERTa's: C -> C, activation, LayerNorm, then a score for every word."""

    def __init__(self, width: int, words: nn.Parameter, activation: str):
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
        config: shape of the encoder.
        vocab_size: V.
        padding_idx: id of padding, which stands at the end of each row.
        tied: the head scores words by their embeddings.

    Example:
        >>> model = TUPEMaskedLM.from_pretrained("directory")
        >>> hidden, logits = model(tokens)
    """

    def __init__(
        self, config: TUPEConfig, vocab_size: int, padding_idx: int = 1, tied: bool = True
    ):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab_size, config.d_model, padding_idx)
        self.encoder = TUPEEncoder(config)
        words = self.embed_tokens.weight
        head = words if tied else nn.Parameter(words.detach().clone())
        self.lm_head = MaskedWordHead(config.d_model, head, config.activation)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Ids B×T -> hidden states B×T×C and logits B×T×V.

        Raises:
            UsageError: more tokens than positions, or padding before the first token.
        """
        padding = tokens.eq(self.embed_tokens.padding_idx)
        hidden = self.encoder(self.embed_tokens(tokens), padding if padding.any() else None)
        return hidden, self.lm_head(hidden)

    def settings(self) -> dict[str, Any]:
        """What config.json holds."""
        return {
            "format": FORMAT,
            "encoder": asdict(self.encoder.config),
            "vocab_size": self.embed_tokens.num_embeddings,
            "padding_idx": self.embed_tokens.padding_idx,
            "tied": self.lm_head.weight is self.embed_tokens.weight,
        }

    @classmethod
    def from_pretrained(cls, directory: str | Path) -> TUPEMaskedLM:
        """Load a directory, in eval mode.

        Raises:
            UsageError: it holds no such model; the message names the file.
        """
        path = Path(directory, "config.json")
        settings = _read_settings(path)
        tensors = read_tensors(path.with_name("model.safetensors"))
        layers = {name.split(".")[2] for name in tensors if name.startswith("encoder.layers.")}
        try:
            config = TUPEConfig(**settings.pop("encoder"))
            if config.num_layers != len(layers):
                raise UsageError(
                    f"{path}: its num_layers is {config.num_layers}, but model.safetensors has "
                    f"{len(layers)} layers."
                )
            # Its numbers may be any; on this device tensors take no memory.
            with torch.device("meta"):
                expected = cls(config, **settings).state_dict()
        except UsageError:
            raise
        # What a class makes of values of other types can be any error.
        except Exception as error:
            raise UsageError(f"{path} is damaged: {error}.") from error
        check_fit(tensors, expected, path.with_name("model.safetensors"), "standalone")
        model = cls(config, **settings)
        model.load_state_dict(tensors)
        return model.eval()


def _read_settings(path: Path) -> dict[str, Any]:
    """What config.json holds, but for `format`.

    Raises:
        UsageError: it is not there, or something else.
    """
    try:
        with open(path, encoding="utf-8") as file:
            settings = json.loads(file.read(LONGEST_CONFIG))
        if settings.pop("format", None) != FORMAT:
            raise UsageError(f"{path} is not of the form {FORMAT!r}.")
        return settings
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}.") from error
    except UsageError:
        raise
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} is damaged: {error}.") from error
