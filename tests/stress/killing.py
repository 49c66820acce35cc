"""Kill a command again and again, and compare its output with that of an undisturbed run."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tests import ROOT


@dataclass
class Case:
    """A command that can be killed.

    Attributes:
        name: in the table.
        command: returns the command for a folder.
        outcome: returns what the command made in the folder, to be compared.
        whole: raises if the folder of a killed run holds something broken.
    """

    name: str
    command: Callable[[Path], list[str]]
    outcome: Callable[[Path], Any]
    whole: Callable[[Path], None] = lambda folder: None
    kills: int = 0
    compared: int = 0
    lost: list[str] = field(default_factory=list)

    def found(self) -> dict[str, Any]:
        """The counts."""
        return {"kills": self.kills, "compared": self.compared, "lost": self.lost}


def disturb(case: Case, out: Path, kills: int, rng: random.Random) -> None:
    """Kill and resume until there were enough kills; compare each run that reaches its end."""
    calm, folder = out / f"{case.name}.calm", out / f"{case.name}.killed"
    for each in (calm, folder):
        shutil.rmtree(each, ignore_errors=True)
        each.mkdir()
    started = time.monotonic()
    status = start(case, calm).wait()
    if status:
        raise SystemExit(f"error: {case.name} fails undisturbed; see {calm}/output.log.")
    duration, expected = time.monotonic() - started, case.outcome(calm)
    progress = tqdm(total=kills, desc=case.name, unit=" kills")
    while case.kills < kills or not case.compared:
        process = start(case, folder)
        # The last run is not killed, so that there is something to compare.
        patience = rng.uniform(0, duration) if case.kills < kills else None
        try:
            status = process.wait(patience)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            case.kills += 1
            progress.update()
            case.whole(folder)
            continue
        if status:
            case.lost.append(f"status {status} after {case.kills} kills, see {folder}")
            return
        case.compared += 1
        if case.outcome(folder) != expected:
            case.lost.append(f"another outcome after {case.kills} kills, see {folder}")
            return
        shutil.rmtree(folder)
        folder.mkdir()


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


def table(found: dict[str, dict[str, Any]]) -> str:
    """Numbers of kills and comparisons, and what was lost, as Markdown."""
    rows = ["| command | times killed | completed and compared | lost |", "|---|---|---|---|"]
    for name, case in found.items():
        lost = "; ".join(case["lost"]) or "nothing"
        rows.append(f"| {name} | {case['kills']} | {case['compared']} | {lost} |")
    return "\n".join(rows) + "\n"
