"""fairseq's commands, in this process: starting one anew costs five seconds."""

import copy
import functools
import io
import re
from argparse import Namespace
from pathlib import Path
from unittest import mock

import torch
from fairseq import checkpoint_utils, options
from fairseq.dataclass import utils as fairseq_dataclass
from fairseq_cli import generate as fairseq_generate
from fairseq_cli import train as fairseq_train
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from tests import ROOT

#: hydra's function, which `configuration` replaces.
compose = fairseq_dataclass.compose

PLUGIN = ROOT / "tupe_fairseq"

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


def configuration(arguments: Namespace) -> DictConfig:
    """What `convert_namespace_to_omegaconf` makes of arguments, in a tenth of the time.

    For each choice of task, criterion, optimizer, ..., hydra composes once; their settings are
    then entered in a copy.
    """
    with mock.patch.object(fairseq_dataclass, "compose", _compose):
        return fairseq_dataclass.convert_namespace_to_omegaconf(arguments)


def _compose(name: str, overrides: list[str], strict: bool) -> DictConfig:
    choices = tuple(word for word in overrides if "." not in word.partition("=")[0])
    found = copy.deepcopy(_composed(name, choices, strict))
    for word in overrides:
        if word not in choices:
            OmegaConf.update(found, *_parsed(word), merge=True)
    return found


@functools.cache
def _composed(name: str, choices: tuple[str, ...], strict: bool) -> DictConfig:
    return compose(name, overrides=list(choices), strict=strict)


@functools.cache
def _parsed(override: str) -> tuple[str, object]:
    (found,) = OverridesParser.create().parse_overrides([override])
    return found.key_or_group, found.value()


def train(*flags: object) -> Path:
    """Run `fairseq-train` with these flags; --save-dir must be among them.

    Returns:
        The last checkpoint.
    """
    parser = options.get_training_parser()
    arguments = options.parse_args_and_arch(parser, [str(flag) for flag in flags])
    return train_by(configuration(arguments))


def train_by(settings: DictConfig) -> Path:
    """Run fairseq's training; returns the last checkpoint."""
    # fairseq keeps the best score of the last run in a function attribute.
    checkpoint_utils.save_checkpoint.__dict__.pop("best", None)
    fairseq_train.main(settings)
    return Path(settings.checkpoint.save_dir) / "checkpoint_last.pt"


def pretrain(data: Path, save_dir: Path, *flags: object) -> Path:
    """Train a masked language model for six updates unless told otherwise."""
    task = ("--task", "masked_lm", "--criterion", "masked_lm", "--tokens-per-sample", "64")
    limit = () if "--max-update" in flags else ("--max-update", 6)
    return train(data, *task, *COMMON, *SMALL, *limit, "--save-dir", save_dir, *flags)


def finetune(data: Path, save_dir: Path, *flags: object, separator: bool | None = None) -> Path:
    """Train a sentence classifier (or regressor) for one epoch.

    ``separator`` is whether a second </s> separates two sentences.
    """
    task = ("--task", "sentence_prediction", "--max-positions", "64", "--init-token", 0)
    if separator is None:
        # As examples/glue/pretrained.py: sentences of models with token types are separated once.
        separator = "--type-vocab-size" not in flags
    between = ("--separator-token", 2) if separator else ()
    more = (*between, "--max-epoch", 1, "--save-dir", save_dir)
    criterion = () if "--criterion" in flags else ("--criterion", "sentence_prediction")
    return train(data, *task, *more, *criterion, *COMMON, *SMALL, *flags)


#: Settings of a small encoder-decoder.
SMALL_TRANSFORMER = (
    *("--arch", "tupe_transformer_tiny", "--encoder-layers", "2", "--decoder-layers", "2"),
    *("--encoder-embed-dim", "32", "--decoder-embed-dim", "32"),
    *("--encoder-ffn-embed-dim", "32", "--decoder-ffn-embed-dim", "32"),
    *("--max-source-positions", "32", "--max-target-positions", "32"),
)
SMALL_LM = (
    *("--arch", "tupe_transformer_lm_tiny", "--decoder-layers", "2"),
    *("--decoder-embed-dim", "32", "--decoder-ffn-embed-dim", "32"),
)


def train_translation(data: Path, save_dir: Path, *flags: object) -> Path:
    """Train a translation model from `en` to `de` for four updates unless told otherwise."""
    task = ("--task", "translation", "--source-lang", "en", "--target-lang", "de")
    loss = ("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", 0.1)
    loss = () if "--criterion" in flags else loss
    limit = () if "--max-update" in flags else ("--max-update", 4)
    small = () if "--arch" in flags else SMALL_TRANSFORMER
    return train(data, *task, *loss, *COMMON, *small, *limit, "--save-dir", save_dir, *flags)


def train_lm(data: Path, save_dir: Path, *flags: object) -> Path:
    """Train a language model for four updates unless told otherwise."""
    task = ("--task", "language_modeling", "--tokens-per-sample", 32)
    limit = () if "--max-update" in flags else ("--max-update", 4)
    small = () if "--arch" in flags else SMALL_LM
    return train(data, *task, *COMMON, *small, *limit, "--save-dir", save_dir, *flags)


def generate(data: Path, checkpoint: Path, *flags: object) -> dict[int, str]:
    """Run `fairseq-generate` on the split test; returns the hypotheses by sentence."""
    return {i: found["H"][-1] for i, found in generated(data, checkpoint, *flags).items()}


def generated(data: Path, checkpoint: Path, *flags: object) -> dict[int, dict[str, list[str]]]:
    """Run `fairseq-generate`; by sentence, what follows S (source), H (hypothesis), ..."""
    parser = options.get_generation_parser()
    common = ("--path", checkpoint, "--user-dir", PLUGIN, "--cpu", "--num-workers", 0)
    # Without the last, fairseq leaves out what does not fill a batch.
    more = ("--no-progress-bar", "--required-batch-size-multiple", 1)
    given = [str(flag) for flag in (data, *common, *more, *flags)]
    out = io.StringIO()
    fairseq_generate._main(configuration(options.parse_args_and_arch(parser, given)), out)
    found: dict[int, dict[str, list[str]]] = {}
    for line in out.getvalue().splitlines():
        tag, *fields = line.split("\t")
        if mark := re.fullmatch(r"(\w)-(\d+)", tag):
            found.setdefault(int(mark[2]), {})[mark[1]] = fields
    return found


def parameters(checkpoint: Path) -> dict[str, torch.Tensor]:
    """The model's tensors."""
    return torch.load(checkpoint, weights_only=True)["model"]


def updates(checkpoint: Path) -> int:
    """How many updates were done."""
    return torch.load(checkpoint, weights_only=True)["optimizer_history"][-1]["num_updates"]


def load(checkpoint: Path, **overrides: object) -> torch.nn.Module:
    """The model, as fairseq loads it for evaluation."""
    (model,), _ = checkpoint_utils.load_model_ensemble([str(checkpoint)], overrides)
    return model.eval()
