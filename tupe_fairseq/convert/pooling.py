"""Embeddings of sentences, made of the features of their tokens."""

import torch.nn.functional as F
from torch import Tensor, nn

from ..base.errors import ConfigurationError
from ..transformer.pooling import mean_of_tokens

KINDS = ("none", "mean", "cls")


class Pooling(nn.Module):
    """Features, or one vector for each sentence.

    Args:
        kind: "none" returns the features; "mean" averages those of the tokens, and "cls" takes
            those of the first.
        normalize: whether vectors of sentences get unit length.

    Attributes:
        dimension: how many values of such a vector are kept, after that; None: all.

    Raises:
        ConfigurationError: the kind is unknown, or features would be normalized.
    """

    dimension: int | None = None

    def __init__(self, kind: str, normalize: bool = False) -> None:
        super().__init__()
        if kind not in KINDS:
            raise ConfigurationError(f"--pooling is {kind!r}, but can be: {', '.join(KINDS)}.")
        if normalize and kind == "none":
            raise ConfigurationError(
                "--normalize is for embeddings of sentences: add --pooling mean or cls."
            )
        self.kind = kind
        self.normalize = normalize

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        """Features B×T×C and mask B×T, 1 at tokens -> B×C, or B×T×C with the kind "none"."""
        if self.kind == "none":
            return features
        pooled = features[:, 0]
        if self.kind == "mean":
            pooled = mean_of_tokens(features, mask)
        vectors = F.normalize(pooled, dim=-1) if self.normalize else pooled
        return vectors[:, : self.dimension]


class WithPooling(nn.Module):
    """A model of transformers that returns only its first outputs, or the first one pooled.

    Args:
        model: of transformers.
        pooling: of the first output.
        outputs: how many are returned if nothing is pooled.
    """

    def __init__(self, model: nn.Module, pooling: Pooling | None, outputs: int = 1) -> None:
        super().__init__()
        self.model = model
        self.pooling = pooling
        self.outputs = outputs

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor | tuple[Tensor, ...]:
        """Logits, features or embeddings; a tuple of more than one output."""
        found: tuple[Tensor, ...] = self.model(
            input_ids, attention_mask, token_type_ids=token_type_ids, return_dict=False
        )
        if self.outputs > 1:
            return found[: self.outputs]
        return found[0] if self.pooling is None else self.pooling(found[0], attention_mask)
