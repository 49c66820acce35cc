"""examples/shared/workers.py: processes of a pool end with their parent."""

import os
import signal
import subprocess
import sys
from contextlib import suppress

from tests.scripts import ROOT

#: Prints the numbers of two workers, which then wait for work.
PROGRAM = """
import os, time
from concurrent.futures import ProcessPoolExecutor
from examples.shared.workers import end_with

def number(_):
    time.sleep(0.3)
    return os.getpid()

with ProcessPoolExecutor(2, None, end_with, (os.getpid(),)) as pool:
    print(*set(pool.map(number, range(4))), flush=True)
    time.sleep(600)
"""


def test_workers_end_with_a_killed_parent():
    """They hold standard output open as long as they run."""
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, stdout=subprocess.PIPE, text=True,
        start_new_session=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        assert len(program.stdout.readline().split()) == 2
        program.kill()
        rest, _ = program.communicate(timeout=60)
        assert rest == ""
    finally:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
