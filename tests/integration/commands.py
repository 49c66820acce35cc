"""fairseq's commands, in this process: starting one anew costs five seconds."""

from __future__ import annotations

from pathlib import Path

import torch
from fairseq import checkpoint_utils, options
from fairseq_cli import train as fairseq_train

PLUGIN = Path(__file__).parents[2] / "tupe_fairseq"

COMMON = (
    *("--user-dir", str(PLUGIN), "--cpu", "--num-workers", "0", "--no-progress-bar"),
    *("--optimizer", "adam", "--lr", "0.001", "--batch-size", "16", "--no-epoch-checkpoints"),
    *("--required-batch-size-multiple", "1"),
    *("--distributed-world-size", "1", "--ddp-backend", "legacy_ddp"),
)
#: The smallest model that has everything.
SMALL = (
    *("--arch", "tupe_roberta", "--encoder-layers", "2", "--encoder-embed-dim", "32"),
    *("--encoder-ffn-embed-dim", "64", "--encoder-attention-heads", "4"),
)
FINETUNE = ("--reset-optimizer", "--reset-dataloader", "--reset-meters")


def train(*flags: object) -> Path:
    """Run `fairseq-train` with these flags; --save-dir must be among them.

    Returns:
        The last checkpoint.
    """
    # fairseq keeps the best score of the last run in a function attribute.
    checkpoint_utils.save_checkpoint.__dict__.pop("best", None)
    parser = options.get_training_parser()
    arguments = options.parse_args_and_arch(parser, [str(flag) for flag in flags])
    fairseq_train.main(arguments)
    return Path(arguments.save_dir) / "checkpoint_last.pt"


def pretrain(data: Path, save_dir: Path, *flags: object) -> Path:
    """Train a masked language model for six updates unless told otherwise."""
    task = ("--task", "masked_lm", "--criterion", "masked_lm", "--tokens-per-sample", "64")
    limit = () if "--max-update" in flags else ("--max-update", 6)
    return train(data, *task, *COMMON, *SMALL, *limit, "--save-dir", save_dir, *flags)


def finetune(data: Path, save_dir: Path, *flags: object) -> Path:
    """Train a sentence classifier (or regressor) for one epoch."""
    task = ("--task", "sentence_prediction", "--max-positions", "64", "--init-token", 0)
    more = ("--separator-token", 2, "--max-epoch", 1, "--save-dir", save_dir)
    criterion = () if "--criterion" in flags else ("--criterion", "sentence_prediction")
    return train(data, *task, *more, *criterion, *COMMON, *SMALL, *flags)


def parameters(checkpoint: Path) -> dict[str, torch.Tensor]:
    """The model's tensors."""
    return torch.load(checkpoint, weights_only=True)["model"]
