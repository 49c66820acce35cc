"""A trained TUPE as a plain torch module: ids in, hidden states and logits out; no fairseq.

Loads what `scripts/convert_checkpoint.py --to standalone` wrote: config.json, model.safetensors,
dict.txt.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from .errors import UsageError
from .interop.tensors import read_tensors
from .standalone import ACTIVATIONS, TUPEConfig, TUPEEncoder

FORMAT = "tupe_fairseq standalone 1"


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
        try:
            settings = json.loads(path.read_text(encoding="utf-8"))
            if settings.pop("format", None) != FORMAT:
                raise UsageError(f"{path} is not of the form {FORMAT!r}.")
            model = cls(TUPEConfig(**settings.pop("encoder")), **settings)
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}.") from error
        except (AttributeError, KeyError, TypeError, json.JSONDecodeError) as error:
            raise UsageError(f"{path} is damaged: {error}.") from error
        path = path.with_name("model.safetensors")
        try:
            model.load_state_dict(read_tensors(path))
        except RuntimeError as error:
            told = " ".join(str(error).split())
            raise UsageError(f"{path} does not fit config.json: {told[:300]}") from error
        return model.eval()
