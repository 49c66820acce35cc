"""The YAML files agree with the paper's recipe (Ke, He, Liu, ICLR 2021) and the official data."""

import ast
import math

import pytest
from omegaconf import OmegaConf

from examples.glue.tasks import TASKS
from tests.examples.hydra_configs import GLUE, PRETRAINING, QUIET, commanded

pytestmark = [pytest.mark.filterwarnings(text) for text in QUIET]

BOTH = {
    "optimizer._name": "adam",
    "optimizer.weight_decay": 0.01,
    "lr_scheduler._name": "polynomial_decay",
    "lr_scheduler.power": 1.0,
    "lr_scheduler.end_learning_rate": 0.0,
    "optimization.clip_norm": 1.0,
    "model._name": "tupe_roberta_base",
    "model.dropout": 0.1,
}
BASE = BOTH | {
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
#: Names of the files of GLUE.
FILES = {name.lower().replace("-", "_"): task for name, task in TASKS.items()}


@pytest.mark.parametrize(("name", "sequences"), [("base", 256), ("small", 256), ("tiny", 32)])
def test_pretraining(name, sequences):
    """Sequences in a batch on one device, and a rate that falls until the last update."""
    cfg = commanded(PRETRAINING / f"{name}.yaml")
    assert cfg.dataset.batch_size * cfg.optimization.update_freq[0] == sequences
    assert cfg.lr_scheduler.total_num_update == cfg.optimization.max_update
    if name == "base":
        assert {key: OmegaConf.select(cfg, key) for key in BASE} == BASE
        assert ast.literal_eval(cfg.optimizer.adam_betas) == (0.9, 0.999)


@pytest.mark.parametrize("name", FILES)
def test_finetuning(name):
    """5 or 10 epochs of 32 examples, 6 % of the updates for the warm-up."""
    task = FILES[name]
    cfg = commanded(GLUE / f"{name}.yaml")
    epochs = 5 if name in ("mnli", "qnli", "qqp") else 10
    updates = math.ceil(task.splits[0].count / 32) * epochs
    assert {key: OmegaConf.select(cfg, key) for key in BOTH} == BOTH
    assert (cfg.dataset.batch_size, cfg.optimization.update_freq) == (32, [1])
    assert (cfg.optimization.max_epoch, cfg.optimization.max_update) == (epochs, updates)
    assert cfg.lr_scheduler.total_num_update == updates
    assert cfg.lr_scheduler.warmup_updates == round(0.06 * updates)
    assert cfg.distributed_training.distributed_world_size == 1
    assert {*cfg.optimization.lr} <= {2e-5, 3e-5, 4e-5, 5e-5}
    assert cfg.checkpoint.best_checkpoint_metric == task.metric
    assert cfg.checkpoint.maximize_best_checkpoint_metric
    assert cfg.task.num_classes == (len(task.labels) or 1)
    assert cfg.criterion._name == "glue_prediction"
    assert cfg.criterion.regression_target is not bool(task.labels)
    valid = [split.name for split in task.splits if split.name.startswith("valid")]
    assert cfg.dataset.valid_subset.split(",") == valid


def test_all_nine_glue_tasks_are_there():
    assert {path.stem for path in GLUE.glob("*.yaml")} == {*FILES, "own"}
