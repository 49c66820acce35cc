"""The YAML files hold the hyperparameters of the paper (Ke, He, Liu, ICLR 2021)."""

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
PRETRAINING_ONLY = {
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
FINETUNING_ONLY = {
    "dataset.batch_size": 32,
    "optimization.update_freq": [1],
    "distributed_training.distributed_world_size": 1,
    "checkpoint.maximize_best_checkpoint_metric": True,
}
# Size of the official training set, epochs, outputs, metric.
GLUE_TASKS = {
    "cola": (8_551, 10, 2, "mcc"),
    "sst_2": (67_349, 10, 2, "accuracy"),
    "mrpc": (3_668, 10, 2, "accuracy"),
    "sts_b": (5_749, 10, 1, "pearson"),
    "qqp": (363_846, 5, 2, "accuracy"),
    "mnli": (392_702, 5, 3, "accuracy"),
    "qnli": (104_743, 5, 2, "accuracy"),
    "rte": (2_490, 10, 2, "accuracy"),
    "wnli": (635, 10, 2, "accuracy"),
}


def differences(cfg, expected: dict) -> dict:
    """Settings that are not as expected."""
    found = {key: OmegaConf.select(cfg, key) for key in expected}
    return {key: found[key] for key in expected if found[key] != expected[key]}


def test_base_is_the_papers_pretraining():
    cfg = commanded(PRETRAINING / "base.yaml")
    assert differences(cfg, BOTH | PRETRAINING_ONLY) == {}
    assert ast.literal_eval(cfg.optimizer.adam_betas) == (0.9, 0.999)
    assert cfg.lr_scheduler.total_num_update == cfg.optimization.max_update


@pytest.mark.parametrize(("name", "sequences"), [("base", 256), ("small", 256), ("tiny", 32)])
def test_sequences_in_a_batch_on_one_device(name, sequences):
    cfg = commanded(PRETRAINING / f"{name}.yaml")
    assert cfg.dataset.batch_size * cfg.optimization.update_freq[0] == sequences


@pytest.mark.parametrize("name", GLUE_TASKS)
def test_glue_file_is_the_papers_finetuning(name):
    size, epochs, outputs, metric = GLUE_TASKS[name]
    updates = math.ceil(size / 32) * epochs
    cfg = commanded(GLUE / f"{name}.yaml")
    assert differences(cfg, BOTH | FINETUNING_ONLY) == {}
    (rate,) = cfg.optimization.lr
    assert rate in (2e-5, 3e-5, 4e-5, 5e-5)
    assert cfg.optimization.max_epoch == epochs
    assert cfg.optimization.max_update == updates
    assert cfg.lr_scheduler.total_num_update == updates
    assert cfg.lr_scheduler.warmup_updates == round(0.06 * updates)
    assert cfg.task.num_classes == outputs
    assert cfg.checkpoint.best_checkpoint_metric == metric
    assert cfg.criterion._name == "glue_prediction"
    assert cfg.criterion.regression_target is (metric == "pearson")
    (task,) = (each for key, each in TASKS.items() if key.lower().replace("-", "_") == name)
    assert (len(task.labels) or 1, task.metric) == (outputs, metric)
    valid = [split.name for split in task.splits if split.name.startswith("valid")]
    assert cfg.dataset.valid_subset.split(",") == valid


def test_all_nine_glue_tasks_are_there():
    assert {path.stem for path in GLUE.glob("*.yaml")} == set(GLUE_TASKS)
