"""Average the parameters of checkpoints of one training, for evaluation or fine-tuning.

    python scripts/average_checkpoints.py CHECKPOINT... --out FILE

fairseq's script of this name is not in its packages, and torch 2.6 and later refuse to load
checkpoints as it does. FILE has the settings of the last CHECKPOINT and no state of the optimizer.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tupe_fairseq import CheckpointError
from tupe_fairseq.base.errors import one_line_endings
from tupe_fairseq.base.files import replacing
from tupe_fairseq.fairseq.checkpoints.mismatch import differences
from tupe_fairseq.fairseq.checkpoints.reading import read_checkpoint


def average(paths: list[Path]) -> dict[str, Any]:
    """The last checkpoint with the means of all parameters, and without an optimizer.

    Raises:
        UsageError: one cannot be read, or is of another model.
    """
    sums: dict[str, Tensor] = {}
    for path in paths:
        last = read_checkpoint(path)
        model = last["model"]
        if sums and (problems := differences(model, sums)):
            raise CheckpointError(f"{path} is not of the model of {paths[0]}: {problems}.")
        for name, value in model.items():
            sums[name] = sums.get(name, 0) + value.double()
    for name, value in last["model"].items():
        last["model"][name] = (sums[name] / len(paths)).to(value.dtype)
    last.pop("last_optimizer_state", None)
    return last


def main(words: list[str] | None = None) -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("checkpoints", nargs="+", type=Path, metavar="CHECKPOINT")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    args = parser.parse_args(words)
    averaged = average(args.checkpoints)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(args.out) as aside:
        torch.save(averaged, aside)
    print(f"written: {args.out}, the average of {len(args.checkpoints)} checkpoints")


if __name__ == "__main__":
    with one_line_endings():
        main()
