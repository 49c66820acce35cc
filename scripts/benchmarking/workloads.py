"""What `benchmark_training.py` measures: workloads by name, and what flags change in them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tupe_fairseq import UsageError

#: Words of the dictionary; the LM head is not part of a step.
VOCABULARY = 1000


@dataclass(frozen=True)
class Workload:
    """Features of the model, and in training their gradient.

    Attributes:
        batch: sentences B.
        length: words of the longest, T.
        padding: share of the cells; the lengths are spread evenly.
        device: where it is run unless named; "named": it is run only then, on any.
        rounds: where not told otherwise.
        stock: also stock RoBERTa, whose attention of 16,384 words alone would take 50 GB.
    """

    batch: int
    length: int
    padding: float = 0.0
    mode: str = "training"
    layers: int = 6
    width: int = 256
    heads: int = 4
    ffn: int = 1024
    dropout: float = 0.1
    dtype: str = "float32"
    device: str = "cpu"
    rounds: int = 11
    stock: bool = True

    def __str__(self):
        return (
            f"{self.mode}, {self.batch}×{self.length} words, {self.padding:.0%} padding, "
            f"{self.layers} layers, width {self.width}, {self.heads} heads, feed-forward "
            f"{self.ffn}, dropout {self.dropout:g}, {self.dtype}"
        )

    def lengths(self) -> list[int]:
        """Words of each sentence, the longest first."""
        shortest = self.length * (1 - 2 * self.padding)
        spread = torch.linspace(self.length, shortest, self.batch, dtype=torch.float64)
        return spread.round().long().clamp(min=1).tolist()

    def tokens(self) -> torch.Tensor:
        """The same random words at every call, B×T, and <pad> (1) behind them."""
        generator = torch.Generator().manual_seed(1)
        tokens = torch.randint(4, VOCABULARY, (self.batch, self.length), generator=generator)
        lengths = torch.tensor(self.lengths())[:, None]
        return tokens.masked_fill(torch.arange(self.length) >= lengths, 1)

    def check(self) -> None:
        """Raises UsageError where no model or batch is like that."""
        if self.width % self.heads:
            raise UsageError(f"--heads must divide --width {self.width}, but is {self.heads}.")
        if not 0 <= self.padding <= 0.5 or (self.padding and self.batch == 1):
            raise UsageError(
                f"--padding is {self.padding:g}, but must be from 0 to 0.5, "
                "and 0 for one sentence alone."
            )
        if not 0 <= self.dropout < 1:
            raise UsageError(f"--dropout is {self.dropout:g}, but must be from 0 to below 1.")


BASE = {"layers": 12, "width": 768, "heads": 12, "ffn": 3072}
WORKLOADS = {
    "4x512": Workload(4, 512),
    "16x128": Workload(16, 128),
    "base-2x512": Workload(2, 512, **BASE, rounds=5),
    "evaluation-4x512": Workload(4, 512, mode="evaluation"),
    "half-padding": Workload(8, 256, padding=0.5),
    "memory-1x4096": Workload(1, 4096, rounds=2),
    "long-1x16384": Workload(
        1, 16384, layers=4, width=128, ffn=512, stock=False, device="named", rounds=1
    ),
    # All halved, as by fairseq's --bf16.
    "gpu-32x512": Workload(32, 512, **BASE, dtype="bfloat16", device="cuda", rounds=21),
}
#: What flags change, in every workload that is run.
CHANGEABLE = ("batch", "length", "padding", "mode", "layers", "width", "heads", "ffn", "dropout")
