"""A command that is killed at any moment and called again makes what an undisturbed one makes."""

import random

import pytest

from tests.stress import KILLS, SEED, commands
from tests.stress.killing import Case, disturb

#: Goes on where it was killed.
SCRIPT = "for i in 1 2 3 4 5; do [ -e $i ] || sleep 0.1; echo $i >new; mv new $i; done"


def script(out):
    return Case(lambda _: ["sh", "-c", SCRIPT], commands.digests)


@pytest.mark.parametrize(
    "make", commands.CASES if KILLS else [script], ids=lambda make: make.__name__
)
def test_nothing_is_lost(make, tmp_path):
    kills = KILLS or 2
    compared = disturb(make(tmp_path), tmp_path, kills, random.Random(SEED))
    print(f"{make.__name__}: {kills} kills, {compared} compared")
