"""Files that are written aside and renamed."""

import importlib.util
import os
import sys
import time

from tupe_fairseq import files
from tupe_fairseq.files import replacing


def test_what_killed_writers_left_is_removed_after_a_day(tmp_path):
    """Not what another process, of this host or another, may be writing now."""
    names = (".a[1].json.7.partial", ".a[1].json.8.partial", ".a1.json.7.partial", "a[1].json.old")
    for name in names:
        (tmp_path / name).write_text("half")
        os.utime(tmp_path / name, (time.time() - 25 * 3600,) * 2)
    os.utime(tmp_path / names[1], (time.time() - 3600,) * 2)
    (tmp_path / ".a[1].json.9.partial").mkdir()
    with replacing(tmp_path / "a[1].json") as aside:
        aside.write_text("whole")
    assert (tmp_path / "a[1].json").read_text() == "whole"
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"a[1].json", ".a[1].json.9.partial", *names[1:]}


def test_systems_without_locks(tmp_path, monkeypatch):
    """Windows has no fcntl; directories for transformers hold this module too."""
    monkeypatch.setitem(sys.modules, "fcntl", None)
    spec = importlib.util.spec_from_file_location("tupe_fairseq.unlocked", files.__file__)
    unlocked = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(unlocked)
    with unlocked.replacing(tmp_path / "a") as aside:
        aside.write_text("whole")
    with (tmp_path / "a").open() as file, (tmp_path / "a").open() as other:
        assert unlocked.lock(file.fileno())
        assert unlocked.lock(other.fileno())
        assert files.lock(file.fileno())
        assert not files.lock(other.fileno())
