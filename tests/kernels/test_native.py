"""The compilation of the C kernels, and the folder where the library is kept."""

import logging
import multiprocessing
import os
import shlex
import threading
from functools import partial
from pathlib import Path

import pytest

from tupe_fairseq.kernels import native

pytestmark = pytest.mark.skipif(native.find_compiler() is None, reason="there is no C compiler")
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def load():
    """As the first call of `kernels` in a process."""
    return native.kernels.__wrapped__


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The folder of libraries."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tupe_fairseq"


def own_compiler(script: Path, lines: str, monkeypatch) -> None:
    """Make $CC a shell script; "$@" are the arguments for the compiler."""
    compiler = shlex.join(native.find_compiler())
    script.write_text(f'#!/bin/sh\n{lines}\nexec {compiler} "$@"\n')
    script.chmod(0o700)
    monkeypatch.setenv("CC", str(script))


def test_a_compiler_of_several_words(load, folder, monkeypatch):
    """As in CC="ccache gcc"."""
    monkeypatch.setenv("CC", shlex.join(["env", *native.find_compiler()]))
    assert load() is not None
    (library,) = folder.iterdir()
    assert library.name.startswith("kernels-")
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("flag", ["-fopenmp", "-march=native"])
def test_a_slower_library_is_not_built(flag, load, folder, tmp_path, monkeypatch, caplog):
    """torch's operations are faster than kernels without threads or vectors."""
    refuse = f'for word in "$@"; do [ "$word" != {flag} ] || exit 1; done'
    own_compiler(tmp_path / "cc", refuse, monkeypatch)
    with caplog.at_level(logging.INFO):
        assert load() is None
    assert not list(folder.iterdir())
    assert len(caplog.messages) == 1


def _load_in_a_process(results) -> None:
    results.put(native.kernels.__wrapped__() is not None)


@pytest.mark.parametrize("kind", [threading.Thread, FORK.Process])
def test_one_of_many_compiles(kind, folder, tmp_path, monkeypatch):
    own_compiler(tmp_path / "cc", f"echo >>{tmp_path}/calls; sleep 0.2", monkeypatch)
    results = FORK.Queue()
    workers = [kind(target=_load_in_a_process, args=(results,)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(results.get(timeout=60) for _ in workers)
    # It compiles, then it links.
    assert (tmp_path / "calls").read_text() == "\n\n"


def make_open(right, folder, monkeypatch):
    folder.mkdir()
    folder.chmod(0o700 | right)


def make_foreign(folder, monkeypatch):
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)


def make_link(folder, monkeypatch):
    (folder.parent / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to("elsewhere")


def make_file(folder, monkeypatch):
    folder.write_text("")


def make_homeless(folder, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "~")


@pytest.mark.parametrize(
    "make",
    [
        *(partial(make_open, 1 << bit) for bit in range(6)),
        make_foreign,
        make_link,
        make_file,
        make_homeless,
    ],
)
def test_no_folder_of_the_users_own(make, load, folder, monkeypatch, caplog):
    """Another user may have put a library there, which would be run."""
    make(folder, monkeypatch)
    before = set(folder.parent.rglob("*"))
    with caplog.at_level(logging.INFO):
        assert load() is None
    assert set(folder.parent.rglob("*")) == before
    (message,) = caplog.messages
    assert message.startswith("no kernels in C, attention and dropout on CPU are slower: ")
