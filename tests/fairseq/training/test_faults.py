"""Damaged checkpoints and data: training ends in one line that names the file."""

import os
import shutil

import pytest

from tests.fairseq_commands import finetune, pretrain, updates

pytestmark = pytest.mark.usefixtures("under_fairseq_train")


def test_a_cut_off_checkpoint_names_the_one_to_go_on_from(toy_masked_lm_data, tmp_path):
    """fairseq copies checkpoint_last.pt in place: a kill may leave a part of it."""
    flags = ("--save-interval-updates", 1, "--max-update")
    last = pretrain(toy_masked_lm_data, tmp_path, *flags, 3)
    cut_off = last.read_bytes()[:-1000]
    last.write_bytes(cut_off)
    (tmp_path / "checkpoint_best.pt").write_bytes(cut_off)
    others = sorted(tmp_path.glob("checkpoint_?_?.pt"), key=lambda path: path.stem[-1])
    assert len(others) == 3
    for seconds, path in enumerate(others):
        os.utime(path, (seconds, seconds))
    with pytest.raises(SystemExit) as ended:
        pretrain(toy_masked_lm_data, tmp_path, *flags, 6)
    told = str(ended.value)
    assert told.startswith(
        f"error: {last} cannot be loaded: it is not a checkpoint, or is damaged."
    )
    assert f"is {others[2].name}: copy it to checkpoint_last.pt" in told
    assert "\n" not in told
    shutil.copy(others[2], last)
    assert updates(pretrain(toy_masked_lm_data, tmp_path, *flags, 6)) == 6


@pytest.mark.parametrize(
    ("name", "damage", "part"),
    [
        ("train.bin", lambda raw: raw[:-10], "train.bin has"),
        ("valid.idx", lambda raw: raw[:17] + b"\x63" + raw[18:], "valid.idx is cut off"),
        (
            "dict.txt",
            lambda raw: b"".join(raw.splitlines(True)[:150]),
            "train.bin was binarised with another dictionary",
        ),
    ],
)
def test_damaged_data_is_named(toy_masked_lm_data, tmp_path, name, damage, part):
    data = tmp_path / "data"
    shutil.copytree(toy_masked_lm_data, data)
    (data / name).write_bytes(damage((data / name).read_bytes()))
    with pytest.raises(SystemExit) as ended:
        pretrain(data, tmp_path / "model")
    assert str(ended.value).startswith("error: ")
    assert f"{data}/{part}" in str(ended.value)
    assert "\n" not in str(ended.value)


def test_damaged_labels_are_named(toy_sentence_data, tmp_path):
    shutil.copytree(toy_sentence_data["pairs"], tmp_path / "data")
    file = tmp_path / "data" / "label" / "train.bin"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(SystemExit, match=r"label/train.bin has \d+ bytes"):
        finetune(tmp_path / "data", tmp_path / "model", "--num-classes", 2)
