"""The table of tasks and the YAML files agree."""

import pytest

from examples.glue.tasks import TASKS
from tests.examples.hydra_configs import GLUE, QUIET, commanded
from tests.glue import samples  # noqa: F401, for the import path

pytestmark = [pytest.mark.filterwarnings(text) for text in QUIET]


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_file_and_row_are_of_the_same_task(task):
    cfg = commanded(GLUE / f"{task.config}.yaml")
    assert cfg.task.num_classes == (len(task.labels) or 1)
    assert cfg.checkpoint.best_checkpoint_metric == task.metric
    valid = [split.name for split in task.splits if split.name.startswith("valid")]
    assert cfg.dataset.valid_subset.split(",") == valid
