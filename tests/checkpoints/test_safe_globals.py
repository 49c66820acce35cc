"""torch's list of safe globals is extended while checkpoints load, and is then as before."""

import argparse
import pickle
import threading
from fractions import Fraction

import pytest
import torch
from fairseq import checkpoint_utils
from torch.serialization import add_safe_globals, clear_safe_globals, get_safe_globals

from tests import processes
from tests.interop import release
from tupe_fairseq import TupeRobertaModel
from tupe_fairseq.checkpoints import reading
from tupe_fairseq.checkpoints.reading import (
    CHECKPOINT_GLOBALS,
    add_safe_checkpoint_globals,
    read_checkpoint,
    safe_checkpoint_globals,
)
from tupe_fairseq.interop.convert import convert


@pytest.fixture(autouse=True)
def empty_list(monkeypatch):
    """As in a new process, although the tests' own fixture has extended the list."""
    before = get_safe_globals()
    clear_safe_globals()
    monkeypatch.setattr(reading, "_open_blocks", 0)
    monkeypatch.setattr(reading, "_added", reading.ExitStack())
    yield
    clear_safe_globals()
    add_safe_globals(before)


@pytest.fixture
def checkpoint(tmp_path):
    """With settings of both kinds that fairseq has written."""
    official = release.write(tmp_path / "release")
    convert(["--from", "tupe-official", str(official), "--out", str(tmp_path / "model")])
    return tmp_path / "model" / "model.pt"


#: Prints how many of ours are listed; torch itself lists classes when some of it is imported.
IMPORT = """
import sys, torch
sys.argv = sys.argv[1:]
import tupe_fairseq
from tupe_fairseq.checkpoints.reading import CHECKPOINT_GLOBALS as ours
print(len(set(torch.serialization.get_safe_globals()) & set(ours)))
"""


@pytest.mark.parametrize(
    ("program", "listed"), [("notebook", 0), ("fairseq-train", len(CHECKPOINT_GLOBALS))]
)
def test_only_under_fairseqs_commands_an_import_extends_the_list(tmp_path, program, listed):
    (tmp_path / "program.py").write_text(IMPORT)
    ended = processes.run(tmp_path / "program.py", program)
    assert int(ended.stdout) == listed


def test_our_loaders_leave_the_list_as_it_was(checkpoint):
    add_safe_globals([Fraction, argparse.Namespace])
    before = set(get_safe_globals())
    assert read_checkpoint(checkpoint)["cfg"]
    assert TupeRobertaModel.from_pretrained(checkpoint).model.max_positions()
    assert set(get_safe_globals()) == before


def test_fairseqs_own_loaders_need_a_block(checkpoint):
    given = [str(checkpoint)], {"data": str(checkpoint.parent)}
    with pytest.raises(pickle.UnpicklingError):
        checkpoint_utils.load_model_ensemble(*given)
    with safe_checkpoint_globals():
        assert checkpoint_utils.load_model_ensemble(*given)[0]
    assert not get_safe_globals()
    add_safe_checkpoint_globals()
    assert checkpoint_utils.load_model_ensemble(*given)[0]


def test_nested_blocks_and_what_was_listed_before():
    add_safe_globals([Fraction, CHECKPOINT_GLOBALS[0]])
    before = set(get_safe_globals())
    with safe_checkpoint_globals():
        with pytest.raises(KeyError), safe_checkpoint_globals():
            raise KeyError
        assert set(get_safe_globals()) == before | set(CHECKPOINT_GLOBALS)
    assert set(get_safe_globals()) == before


def test_blocks_in_several_threads(checkpoint):
    """The first to begin ends before the second."""
    began, ended = threading.Event(), threading.Event()

    def first():
        with safe_checkpoint_globals():
            began.set()
            ended.wait(60)

    thread = threading.Thread(target=first)
    thread.start()
    began.wait(60)
    with safe_checkpoint_globals():
        ended.set()
        thread.join()
        assert torch.load(checkpoint, weights_only=True)["cfg"]
    assert not get_safe_globals()


def test_a_process_may_extend_the_list_inside_a_block():
    with safe_checkpoint_globals():
        add_safe_checkpoint_globals()
    assert set(get_safe_globals()) == set(CHECKPOINT_GLOBALS)
    with safe_checkpoint_globals():
        pass
    assert set(get_safe_globals()) == set(CHECKPOINT_GLOBALS)
