"""Which checkpoints of a folder are intact, and which one a training resumes from."""

import os
import random

import pytest
import torch

from tests.stress.damage import damaged
from tupe_fairseq.fairseq.checkpoints.intact import is_intact, newest_intact_checkpoint, repair
from tupe_fairseq.fairseq.checkpoints.reading import read_checkpoint


@pytest.fixture
def folder(tmp_path):
    """Four checkpoints, the later ones with a larger number; the last one is cut off."""
    for number in range(4):
        path = tmp_path / f"checkpoint_1_{number}.pt"
        torch.save({"model": {"a": torch.full((9,), float(number))}}, path)
        os.utime(path, (number, number))
    path.write_bytes(path.read_bytes()[:-9])
    os.utime(path, (number, number))
    return tmp_path


def test_newest_intact_checkpoint(folder):
    assert newest_intact_checkpoint(folder).name == "checkpoint_1_2.pt"
    besides = folder / "checkpoint_1_2.pt"
    assert newest_intact_checkpoint(folder, besides).name == "checkpoint_1_1.pt"
    assert newest_intact_checkpoint(folder / "none") is None


def test_damage_of_any_kind_raises_nothing(folder):
    path = folder / "checkpoint_1_0.pt"
    rng = random.Random(3)
    raw = path.read_bytes()
    for length in range(0, len(raw), 29):
        path.write_bytes(raw[:length])
        assert not is_intact(path), "a part"
    judged = []
    for _ in range(500):
        path.write_bytes(damaged(raw, rng))
        judged.append(is_intact(path))
    assert judged.count(False) > 300


def test_repair(folder):
    (folder / "checkpoint_last.tmp").write_bytes(b"of a call that was killed")
    newest = (folder / "checkpoint_1_2.pt").read_bytes()
    repair(folder)
    assert {path.name for path in folder.iterdir()} == {
        *(f"checkpoint_1_{number}.pt" for number in range(3)),
        "checkpoint_last.pt",
    }
    assert (folder / "checkpoint_last.pt").read_bytes() == newest
    (folder / "checkpoint_1_0.pt").rename(folder / "checkpoint_last.pt")
    last = (folder / "checkpoint_last.pt").read_bytes()
    repair(folder)
    assert (folder / "checkpoint_last.pt").read_bytes() == last


def test_nothing_is_removed_where_a_checkpoint_cannot_be_read(folder):
    (folder / "checkpoint_best.pt").mkdir()
    before = set(folder.iterdir())
    with pytest.raises(IsADirectoryError):
        repair(folder)
    assert set(folder.iterdir()) == before


def test_only_damaged_checkpoints_are_removed(tmp_path):
    """torch's older format is no zip archive; a file of another kind may be the user's own."""
    old = tmp_path / "checkpoint_old.pt"
    torch.save({"model": {}}, old, _use_new_zipfile_serialization=False)
    assert read_checkpoint(old) == {"model": {}}
    (tmp_path / "checkpoint_mine.pt").write_bytes(b"mine")
    (tmp_path / "notes.tmp").write_bytes(b"mine")
    kept = set(tmp_path.iterdir())
    for number, damage in enumerate((b"", b"P", b"PK\3\4", bytes(9))):
        (tmp_path / f"checkpoint{number}.pt").write_bytes(damage)
    (tmp_path / "checkpoint5.pt.tmp").write_bytes(b"of fairseq, killed while it wrote")
    repair(tmp_path)
    assert set(tmp_path.iterdir()) == kept
