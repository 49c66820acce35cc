"""The YAML files under examples/: they compose, build, hold the paper's numbers, and train."""

from __future__ import annotations

import ast
import copy
import functools
import math
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch
from fairseq import checkpoint_utils, models, optim, options, tasks
from fairseq.dataclass.initialize import add_defaults, hydra_init
from fairseq.dataclass.utils import convert_namespace_to_omegaconf, omegaconf_no_object_check
from fairseq.optim import lr_scheduler
from fairseq_cli.hydra_train import _hydra_main
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from tests import toy_data
from tupe_fairseq import TupeRobertaModel, UsageError
from tupe_fairseq.models.architectures import ROBERTA_ARCHITECTURES
from tupe_fairseq.position import POSITION_ENCODINGS

pytestmark = [
    pytest.mark.filterwarnings("ignore:(?s).*validated against ConfigStore"),
    pytest.mark.filterwarnings("ignore:(?s).*version_base parameter is not specified"),
]

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "examples").rglob("*.yaml"))
#: Files to be named by --config-name; the others are pieces, added by +FOLDER=NAME.
MAIN = [path for path in FILES if path.parent.name == "config"]
PIECES = [path for path in FILES if path.parent.parent.name == "config"]
PRETRAINING = ROOT / "examples/pretraining/config"
GLUE = ROOT / "examples/glue/config"


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@functools.cache
def composed_once(path: Path, *overrides: str):
    GlobalHydra.instance().clear()
    hydra_init(path.stem)
    with initialize_config_dir(str(path.parent)):
        cfg = compose(path.stem, overrides=list(overrides))
    add_defaults(cfg)
    with omegaconf_no_object_check():
        cfg = OmegaConf.create(OmegaConf.to_container(cfg, resolve=True, enum_to_str=True))
    OmegaConf.set_struct(cfg, True)
    return cfg


def composed(path: Path, *overrides: str):
    """What fairseq-hydra-train hands to training, from a file and overrides."""
    return copy.deepcopy(composed_once(path, *overrides))


def build(cfg):
    """The model of a configuration, on the meta device, by its own task with toy dictionaries."""
    words = toy_data.word_dictionary()
    dictionaries = {"masked_lm": (words,), "sentence_prediction": (words, words)}
    name = cfg.task._name
    task = tasks.TASK_REGISTRY[name](cfg.task, *dictionaries[name])
    # fairseq initialises by way of the CPU, where tensors without data cannot go.
    with torch.device("meta"), mock.patch.object(torch.Tensor, "cpu", lambda tensor: tensor):
        return task.build_model(cfg.model)


def launch_command(path: Path) -> list[str]:
    """The command in the header of a file."""
    header = path.read_text().partition("\n\n")[0].replace("\n#", "\n")
    command = re.search(r"fairseq-hydra-train(?:.*\\\n)*.*", header)[0]
    return shlex.split(command.replace("\\\n", " ").replace("$(pwd)", str(ROOT)))


# ---------------------------------------------------------------- files compose and build


def test_all_files_are_tested():
    assert MAIN
    assert PIECES
    assert set(FILES) == {*MAIN, *PIECES}


@pytest.mark.parametrize("path", MAIN, ids=relative)
def test_file_builds_what_its_header_commands(path):
    _, where, folder, which, name, *overrides = launch_command(path)
    assert (where, which) == ("--config-dir", "--config-name")
    assert (ROOT / folder, name) == (path.parent, path.stem)
    cfg = composed(path, *overrides)
    assert Path(cfg.common.user_dir) == ROOT / "tupe_fairseq"
    model = build(cfg)
    assert isinstance(model, TupeRobertaModel)
    assert cfg.model._name in ROBERTA_ARCHITECTURES
    assert model.args.position_encoding == "tupe_r"
    assert model.max_positions() == 512 if path.stem != "small" else 128
    if cfg.task._name == "sentence_prediction":
        head = model.classification_heads[cfg.criterion.classification_head_name]
        assert head.out_proj.out_features == cfg.task.num_classes


@pytest.mark.parametrize("path", PIECES, ids=relative)
def test_piece_adds_to_every_file_beside_it(path):
    folder = path.parent
    encoding = "tupe_a" if path.stem == "tupe_a_tie_cls" else path.stem
    for main in folder.parent.glob("*.yaml"):
        model = build(composed(main, f"+{folder.name}={path.stem}"))
        position = model.encoder.sentence_encoder.embed_positions
        assert type(position) is POSITION_ENCODINGS[encoding]
        assert getattr(position, "untie_cls", True) is (path.stem != "tupe_a_tie_cls")


def test_every_encoding_has_a_file():
    ours = {k for k, v in POSITION_ENCODINGS.items() if v.__module__.startswith("tupe_fairseq.")}
    assert ours <= {path.stem for path in PIECES}


@pytest.mark.parametrize("path", MAIN, ids=relative)
def test_learning_rate_rises_over_the_warm_up_and_falls_to_zero(path):
    cfg = composed(path)
    optimizer = optim.build_optimizer(cfg.optimizer, [torch.nn.Parameter(torch.zeros(1))])
    schedule = lr_scheduler.build_lr_scheduler(cfg.lr_scheduler, optimizer)
    warmup, last, top = (
        cfg.lr_scheduler.warmup_updates,
        cfg.optimization.max_update,
        cfg.optimization.lr[0],
    )
    assert schedule.step_update(1) == pytest.approx(top / warmup)
    assert schedule.step_update(warmup) == pytest.approx(top)
    assert schedule.step_update((warmup + last) // 2) == pytest.approx(top / 2, rel=1e-2)
    assert schedule.step_update(last) == 0


# ---------------------------------------------------------------- the paper's numbers

PAPER = {
    "optimizer._name": "adam",
    "optimizer.weight_decay": 0.01,
    "lr_scheduler._name": "polynomial_decay",
    "lr_scheduler.power": 1.0,
    "optimization.clip_norm": 1.0,
    "model.dropout": 0.1,
    "model._name": "tupe_roberta_base",
}
PAPER_PRETRAINING = PAPER | {
    "task.tokens_per_sample": 512,
    "task.sample_break_mode": "complete",
    "task.mask_prob": 0.15,
    "task.leave_unmasked_prob": 0.1,
    "task.random_token_prob": 0.1,
    "optimizer.adam_eps": 1e-6,
    "lr_scheduler.warmup_updates": 10_000,
    "optimization.max_update": 1_000_000,
    "optimization.lr": [1e-4],
    "model.attention_dropout": 0.1,
}
PAPER_FINETUNING = PAPER | {
    "dataset.batch_size": 32,
    "optimization.update_freq": [1],
    "distributed_training.distributed_world_size": 1,
    "checkpoint.maximize_best_checkpoint_metric": True,
}
# Task: size of the training set, epochs, outputs, metric, what the criterion needs for it.
GLUE_TASKS = {
    "cola": (8_551, 10, 2, "mcc", {"report_mcc"}),
    "sst_2": (67_349, 10, 2, "accuracy", set()),
    "mrpc": (3_668, 10, 2, "accuracy", {"report_acc_and_f1"}),
    "sts_b": (5_749, 10, 1, "pearson", {"regression_target", "report_pearson_and_spearman"}),
    "qqp": (363_846, 5, 2, "accuracy", {"report_acc_and_f1"}),
    "mnli": (392_702, 5, 3, "accuracy", set()),
    "qnli": (104_743, 5, 2, "accuracy", set()),
    "rte": (2_490, 10, 2, "accuracy", set()),
    "wnli": (635, 10, 2, "accuracy", set()),
}


def differences(cfg, expected: dict) -> dict:
    """Settings that are not as expected."""
    found = {key: OmegaConf.select(cfg, key) for key in expected}
    return {key: found[key] for key in expected if found[key] != expected[key]}


def test_base_is_the_papers_pretraining():
    cfg = composed(PRETRAINING / "base.yaml")
    assert differences(cfg, PAPER_PRETRAINING) == {}
    assert ast.literal_eval(cfg.optimizer.adam_betas) == (0.9, 0.999)


@pytest.mark.parametrize(("name", "sequences"), [("base", 256), ("small", 256), ("tiny", 32)])
def test_batch_on_one_gpu(name, sequences):
    cfg = composed(PRETRAINING / f"{name}.yaml")
    assert cfg.dataset.batch_size * cfg.optimization.update_freq[0] == sequences


@pytest.mark.parametrize("name", GLUE_TASKS)
def test_glue_task_is_the_papers(name):
    size, epochs, outputs, metric, needs = GLUE_TASKS[name]
    cfg = composed(GLUE / f"{name}.yaml")
    updates = math.ceil(size / 32) * epochs
    assert differences(cfg, PAPER_FINETUNING) == {}
    assert cfg.optimization.lr[0] in (2e-5, 3e-5, 4e-5, 5e-5)
    assert cfg.optimization.max_epoch == epochs
    assert cfg.optimization.max_update == updates
    assert cfg.lr_scheduler.warmup_updates == round(0.06 * updates)
    assert cfg.task.num_classes == outputs
    assert cfg.checkpoint.best_checkpoint_metric == metric
    assert {key for key, value in cfg.criterion.items() if value is True} == needs


def test_all_nine_glue_tasks_are_there():
    assert {path.stem for path in GLUE.glob("*.yaml")} == set(GLUE_TASKS)
