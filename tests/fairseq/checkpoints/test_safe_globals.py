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
from tests.convert import release
from tupe_fairseq import TupeRobertaModel
from tupe_fairseq.convert.command import convert
from tupe_fairseq.fairseq.checkpoints.reading import (
    CHECKPOINT_GLOBALS,
    add_safe_checkpoint_globals,
    read_checkpoint,
    safe_checkpoint_globals,
)


@pytest.fixture(autouse=True)
def empty_list():
    """As in a new process, although the tests' own fixture has extended the list."""
    before = get_safe_globals()
    clear_safe_globals()
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
from tupe_fairseq.fairseq.checkpoints.reading import CHECKPOINT_GLOBALS as ours
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


def test_a_block_in_another_thread_waits(checkpoint):
    """The end of the first block must not remove what the second needs."""
    found = []

    def second():
        with safe_checkpoint_globals():
            found.append(torch.load(checkpoint, weights_only=True)["cfg"])

    thread = threading.Thread(target=second)
    with safe_checkpoint_globals():
        thread.start()
        thread.join(0.05)
        assert not found
    thread.join()
    assert found
    assert not get_safe_globals()
