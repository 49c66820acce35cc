"""Data of which only the amount matters: random ids for fairseq-train, words for the study."""

import random
from pathlib import Path

import torch

from tupe_fairseq.files import replacing

#: Words of the dictionary, and tokens of the data.
VOCABULARY, TOKENS = 30_000, 2_000_000


def write_ids(folder: Path, tokens: int = TOKENS, vocabulary: int = VOCABULARY) -> None:
    """Binarised data for the task `masked_lm`, unless they are there; dict.txt is written last.

    Args:
        folder: where to write train.bin, train.idx, and the dictionary.
        tokens: how many.
        vocabulary: number of words.
    """
    # Other rows run without fairseq.
    from fairseq.data import Dictionary

    from examples.shared.binarised import binarised

    if (folder / "dict.txt").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    dictionary = Dictionary()
    for word in range(vocabulary):
        dictionary.add_symbol(f"w{word}")
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(dictionary.nspecial, len(dictionary), (tokens,), generator=generator)
    with binarised(folder / "train", len(dictionary)) as builder:
        for line in ids.split(1000):
            builder.add_item(line)
    with replacing(folder / "dict.txt") as aside:
        dictionary.save(str(aside))


def write_text(path: Path, lines: int = 60) -> None:
    """Random words that sentencepiece can split, unless they are there."""
    if path.exists():
        return
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(2, 6))) for _ in range(300)]
    with replacing(path) as aside:
        aside.write_text("\n\n".join(" ".join(rng.choices(words, k=60)) for _ in range(lines)))
