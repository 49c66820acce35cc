"""A command that is killed at any moment and called again makes what an undisturbed one makes."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import ROOT
from tests.by_hand import KILLS, SEED
from tests.by_hand.commands import CASES, Case


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_nothing_is_lost(make, tmp_path):
    compared = disturb(make(tmp_path), tmp_path, KILLS, random.Random(SEED))
    print(f"{make.__name__}: {KILLS} kills, {compared} compared")


def disturb(case: Case, out: Path, kills: int, rng: random.Random) -> int:
    """Kill and resume until there were enough kills; compare each run that reaches its end.

    Returns:
        How many runs were compared.
    """
    calm = out / "calm"
    folder = out / "killed"
    calm.mkdir()
    folder.mkdir()
    started = time.monotonic()
    assert start(case, calm).wait() == 0, f"it fails undisturbed, see {calm}/output.log"
    duration = time.monotonic() - started
    expected = case.outcome(calm)
    killed = compared = 0
    while killed < kills or not compared:
        process = start(case, folder)
        # The last run is not killed, so that there is something to compare.
        patience = rng.uniform(0, duration) if killed < kills else None
        try:
            status = process.wait(patience)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            killed += 1
            continue
        assert status == 0, f"status {status} after {killed} kills, see {folder}"
        assert case.outcome(folder) == expected, f"after {killed} kills, see {folder}"
        compared += 1
        shutil.rmtree(folder)
        folder.mkdir()
    return compared


def start(case: Case, folder: Path) -> subprocess.Popen:
    """Start the command as a process group, so that all its processes can be killed at once."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    with open(folder / "output.log", "ab") as log:
        return subprocess.Popen(
            case.command(folder), cwd=folder, env=environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
