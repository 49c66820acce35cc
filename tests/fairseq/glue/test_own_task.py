"""A task of one's own: three labels in a TSV become data, settings of a training and a result."""

import json

import pytest

from examples.glue.predict import models_by_task
from examples.glue.pretrained import own_task
from examples.glue.readers import find_task
from examples.glue.result import best_epoch
from examples.glue.tasks import task_of
from tests.fairseq.glue.samples import write, write_tokenizer
from tests.fairseq.glue.test_preprocess import made
from tests.fairseq.glue.test_results import validation
from tupe_fairseq import UsageError

ROWS = ["good film|up", "bad film|down", "a film|even", "too|many|columns"] * 25
OWN = {
    "tone/train.tsv": "\n".join(["sentence|label", *ROWS, ""]),
    "tone/dev.tsv": "sentence|label\na good film|up\nno label|\n",
    "pairs/train.tsv": "label|sentence1|sentence2\n1|a film|good\n0|a film|bad\n",
}


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "own", OWN)


def test_data_and_training(folder, tmp_path):
    bpe = write_tokenizer(tmp_path / "bpe", "good bad film a too up down even no label")
    data = made(folder, "tone", bpe, tmp_path / "tone-bin")
    assert "75 examples; 25 dropped (too many columns)" in (data / "report.txt").read_text()
    assert "OFFICIALLY" not in (data / "report.txt").read_text()
    words = [line.split()[0] for line in (data / "label" / "dict.txt").read_text().splitlines()]
    assert words == ["down", "even", "up"]
    # 75 examples are 3 batches, ten times.
    updates = ["optimization.max_update=30", "lr_scheduler.warmup_updates=1"]
    assert own_task(data) == ["task.num_classes=3", *updates]


def test_pairs(folder):
    task = find_task(folder, "pairs")
    assert task.sentences == ("sentence1", "sentence2")
    assert task.labels == ("0", "1")


def test_no_such_task(folder):
    with pytest.raises(UsageError, match=r"TASK is 'tune', but must be one of: CoLA, .*dev\.tsv"):
        find_task(folder, "tune")


def test_result():
    found = best_epoch(task_of("tone"), validation(1, "valid", 10, accuracy=70))
    assert found is not None
    assert (found["metric"], found["metrics"]) == ("accuracy", {"accuracy": 70})


def test_not_for_the_leaderboard(tmp_path):
    (tmp_path / "task.json").write_text(json.dumps({"task": "tone"}))
    with pytest.raises(UsageError, match="of tone, which the leaderboard does not have"):
        models_by_task([tmp_path])
