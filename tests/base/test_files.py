"""Files that are written aside and renamed."""

import importlib.util
import os
import stat
import sys
import time
from pathlib import Path

import pytest

from tupe_fairseq.base import files
from tupe_fairseq.base.files import replacing
from tupe_fairseq.convert.output import building


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


def test_writers_with_the_same_process_id(tmp_path):
    """Threads, and processes of containers that share a folder."""
    path = tmp_path / "a.json"
    with replacing(path) as one, replacing(path) as other:
        one.write_text("one")
        other.write_text("other")
    assert path.read_text() == "one"
    assert list(tmp_path.iterdir()) == [path]


def test_permissions_are_those_of_any_new_file(tmp_path):
    before = os.umask(0o027)
    try:
        with replacing(tmp_path / "a") as aside:
            aside.write_text("whole")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_contents_reach_the_disk_before_the_name(kind, tmp_path, monkeypatch):
    """Otherwise a power failure may leave the name of an empty file."""
    events = []
    sync = os.fsync
    rename = os.replace

    def synced(descriptor):
        events.append(Path(f"/proc/self/fd/{descriptor}").resolve())
        sync(descriptor)

    def renamed(aside, path):
        events.append("renamed")
        rename(aside, path)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    if kind == "file":
        with replacing(tmp_path / "a") as aside:
            aside.write_text("whole")
        assert events == [aside, "renamed", tmp_path]
    else:
        with building(tmp_path / "a") as aside:
            (aside / "deep").mkdir()
            (aside / "deep" / "file").write_text("whole")
        contents = {aside, aside / "deep", aside / "deep" / "file"}
        assert (set(events[:3]), events[3:]) == (contents, ["renamed", tmp_path])


def test_systems_without_locks(tmp_path, monkeypatch):
    """Windows has no fcntl; directories for transformers hold this module too."""
    monkeypatch.setitem(sys.modules, "fcntl", None)
    spec = importlib.util.spec_from_file_location("tupe_fairseq.base.unlocked", files.__file__)
    unlocked = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(unlocked)
    with unlocked.replacing(tmp_path / "a") as aside:
        aside.write_text("whole")
    with (tmp_path / "a").open() as file, (tmp_path / "a").open() as other:
        assert unlocked.lock(file.fileno())
        assert unlocked.lock(other.fileno())
        assert files.lock(file.fileno())
        assert not files.lock(other.fileno())
