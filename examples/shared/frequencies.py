"""Binarised text as one array, and the loss of a masked model that uses only token frequencies."""

from pathlib import Path

import numpy as np
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDataset

#: Tokens that are counted at a time.
CHUNK = 1 << 24
#: Shares of the predicted tokens that fairseq hides, keeps and replaces (Devlin et al. 2019).
MASKED = 0.8
KEPT = 0.1
REPLACED = 0.1


def read_tokens(prefix: Path) -> np.ndarray:
    """All tokens of binarised data, concatenated; read from the file where they are used.

    fairseq's dataset makes a tensor of each example. PREFIX.bin holds the ids of all, in order.
    """
    dtype = MMapIndexedDataset.Index(f"{prefix}.idx").dtype
    return np.memmap(f"{prefix}.bin", dtype, mode="r")


def context_free_loss(data: Path, length: int) -> float:
    """The lowest loss without context: of a model that reads no token but the one it predicts.

    It knows the frequencies f of `train`, with every count increased by 1. A visible token w is
    kept with weight KEPT·f(w), or has replaced a token t with weight REPLACED·f(t)/n for n tokens
    that are not special. <s>, the first token of a sequence, costs nothing.

    Args:
        data: folder of the binarised text.
        length: tokens of a sequence.

    Returns:
        Bits per predicted token of `valid`.
    """
    symbols = Dictionary.load(str(data / "dict.txt"))
    special = symbols.nspecial
    n = len(symbols) - symbols.nspecial
    replaces = np.where(np.arange(len(symbols)) < special, 0, REPLACED / n)
    splits = (read_tokens(data / split) for split in ("train", "valid"))
    seen, predicted = (_counts(tokens, len(symbols)) for tokens in splits)
    f = (seen + 1) / (seen + 1).sum()
    visible = KEPT * f + replaces
    kept = -np.log2((KEPT + replaces) * f / visible)
    replaced = -np.log2(REPLACED * f / n) + np.log2(visible[special:]).mean()
    # A token that replaces itself is not different from one that is kept.
    replaced[special:] -= np.log2(1 + n * KEPT / REPLACED) / n
    bits = MASKED * -np.log2(f) + KEPT * kept + REPLACED * replaced
    return float((length - 1) / length * (bits @ predicted) / predicted.sum())


def _counts(tokens: np.ndarray, symbols: int) -> np.ndarray:
    """How often each id occurs, in memory that does not grow with the text."""
    parts = (tokens[start : start + CHUNK] for start in range(0, len(tokens), CHUNK))
    return sum(np.bincount(part, minlength=symbols) for part in parts)
