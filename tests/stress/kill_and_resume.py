"""Kill commands at random moments, resume them, and compare with runs that nobody disturbed.

    python -m tests.stress.kill_and_resume --out FOLDER [--kills 20] [--only training,...]

Not part of the test suite: it takes from minutes to an hour. Each command is killed with SIGKILL,
with all that it has started, until it was killed as often as asked for; where it gets to its end
before, what it made is compared and it starts over. At the end stands a table, also in
FOLDER/kills.md.

    training      repair_checkpoints of scripts/steps.sh, then fairseq-train, resumed by the same
                  command: all final parameters
    ranks         the same through scripts/train_distributed.sh with two processes
    preprocessing fairseq-preprocess as a step of scripts/steps.sh: all files
    conversion    scripts/convert_checkpoint.py: the whole directory or none
    quickstart    scripts/quickstart.sh in a copy of this checkout: the closing table
"""

from __future__ import annotations

import argparse
import hashlib
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

import torch
from tqdm import tqdm

from tests import toy_data
from tests.interop import release
from tupe_fairseq.files import replacing

ROOT = Path(__file__).parents[2]
TINY = (
    *("--arch", "tupe_roberta", "--encoder-layers", "2", "--encoder-embed-dim", "32"),
    *("--encoder-ffn-embed-dim", "64", "--encoder-attention-heads", "4", "--batch-size", "4"),
    *("--task", "masked_lm", "--criterion", "masked_lm", "--tokens-per-sample", "64"),
    *("--optimizer", "adam", "--lr", "0.001", "--max-update", "400", "--num-workers", "0"),
    *("--save-interval-updates", "10", "--keep-interval-updates", "1", "--no-epoch-checkpoints"),
    *("--user-dir", str(ROOT / "tupe_fairseq"), "--cpu", "--required-batch-size-multiple", "1"),
)


@dataclass
class Case:
    """A command that can be killed.

    Attributes:
        name: in the table.
        command: what runs, for a folder of its own.
        outcome: what it made there, to be compared.
        whole: raises where the folder of a killed run holds something that is broken.
    """

    name: str
    command: Callable[[Path], list[str]]
    outcome: Callable[[Path], Any]
    whole: Callable[[Path], None] = lambda folder: None
    kills: int = 0
    compared: int = 0
    differed: list[str] = field(default_factory=list)


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 where nothing was lost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to work in")
    parser.add_argument("--kills", type=int, default=20, help="of each command (default: 20)")
    parser.add_argument("--only", help="names of commands, separated by commas (default: all)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments (default: 1)")
    arguments = parser.parse_args(argv)
    arguments.out.mkdir(parents=True, exist_ok=True)
    chosen = cases(arguments.out.absolute())
    names = arguments.only.split(",") if arguments.only else [case.name for case in chosen]
    for case in (case for case in chosen if case.name in names):
        disturb(case, arguments.out.absolute(), arguments.kills, random.Random(arguments.seed))
    text = table([case for case in chosen if case.name in names])
    with replacing(arguments.out / "kills.md") as aside:
        aside.write_text(text)
    print(text)
    return int(any(case.differed for case in chosen))


def disturb(case: Case, out: Path, kills: int, rng: random.Random) -> None:
    """Kill and resume until there were enough kills, comparing every run that got to its end."""
    calm, folder = out / f"{case.name}.calm", out / f"{case.name}.killed"
    for each in (calm, folder):
        shutil.rmtree(each, ignore_errors=True)
        each.mkdir()
    started = time.monotonic()
    status = start(case, calm).wait()
    if status:
        raise SystemExit(f"error: {case.name} fails undisturbed; see {calm}/output.log.")
    lasts, expected = time.monotonic() - started, case.outcome(calm)
    progress = tqdm(total=kills, desc=case.name, unit=" kills")
    while case.kills < kills or not case.compared:
        process = start(case, folder)
        # At the end it is let through, so that there is something to compare.
        patience = rng.uniform(0, lasts) if case.kills < kills else None
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
            case.differed.append(f"status {status} after {case.kills} kills, see {folder}")
            return
        case.compared += 1
        if case.outcome(folder) != expected:
            case.differed.append(f"another outcome after {case.kills} kills, see {folder}")
            return
        shutil.rmtree(folder)
        folder.mkdir()


def start(case: Case, folder: Path) -> subprocess.Popen:
    """Start the command as a group of processes, so that all can be killed at once."""
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


def table(found: list[Case]) -> str:
    """What was killed how often, and what was lost, as Markdown."""
    rows = ["| command | killed | ran to its end and compared | lost |", "|---|---|---|---|"]
    for case in found:
        lost = "; ".join(case.differed) or "nothing"
        rows.append(f"| {case.name} | {case.kills} | {case.compared} | {lost} |")
    return "\n".join(rows) + "\n"


# ---------------------------------------------------------------- the commands


def cases(out: Path) -> list[Case]:
    """All commands, with the data that they share."""
    data = toy_data.write_masked_lm(out / "data")
    (out / "text.txt").write_text(
        "\n".join(f"w{i % 97} w{i % 89} w{i % 13}" for i in range(30_000)) + "\n"
    )
    checkpoint = release.write(out / "release")
    modules = [sys.executable, "-m"]

    def train(folder: Path) -> list[str]:
        return resumed(folder, *modules, "fairseq_cli.train", str(data), *TINY)

    def ranks(folder: Path) -> list[str]:
        script = ["bash", str(ROOT / "scripts/train_distributed.sh"), "2"]
        return resumed(folder, *script, str(data), *TINY)

    def preprocess(folder: Path) -> list[str]:
        return ["bash", "-c", PREPROCESS, "preprocess", str(ROOT), str(out / "text.txt")]

    def convert(folder: Path) -> list[str]:
        script = [sys.executable, str(ROOT / "scripts/convert_checkpoint.py")]
        return [*script, "--from", "tupe-official", str(checkpoint), "--out", str(folder / "m")]

    return [
        Case("training", train, final_parameters),
        Case("ranks", ranks, final_parameters),
        Case("preprocessing", preprocess, lambda folder: digests(folder / "work" / "data")),
        Case("conversion", convert, converted_parameters, converted_or_nothing),
        Case("quickstart", quickstart, quickstart_results),
    ]


def resumed(folder: Path, *command: str) -> list[str]:
    """A training whose checkpoints are mended first, since fairseq copies the last in place."""
    mended = 'source "$1"; repair_checkpoints "$2"; exec "${@:3}" --save-dir "$2"'
    steps = str(ROOT / "scripts/steps.sh")
    return ["bash", "-c", mended, "resume", steps, str(folder / "m"), *command]


#: A step as in scripts/quickstart.sh.
PREPROCESS = """
set -euo pipefail
source "$1/scripts/steps.sh"
work=work text=$2
data() {
  run python -m fairseq_cli.preprocess --only-source --destdir "$out" \\
    --trainpref "$text" --validpref "$text"
}
lock_work
step data Binarise "$text"
"""


def final_parameters(folder: Path) -> dict[str, str]:
    """Digests of the last checkpoint's parameters and of Adam's state."""
    state = torch.load(folder / "m" / "checkpoint_last.pt", weights_only=True)
    moments = {
        f"{i}.{name}": value
        for i, entry in state["last_optimizer_state"]["state"].items()
        for name, value in entry.items()
    }
    return {
        name: hashlib.sha256(torch.as_tensor(value).numpy().tobytes()).hexdigest()
        for name, value in {**state["model"], **moments}.items()
    }


def converted_parameters(folder: Path) -> dict[str, str]:
    """Digests of a converted model."""
    state = torch.load(folder / "m" / "model.pt", weights_only=True)["model"]
    return {n: hashlib.sha256(v.numpy().tobytes()).hexdigest() for n, v in state.items()}


def converted_or_nothing(folder: Path) -> None:
    """The directory is complete, or not there; then the next call can start."""
    if (folder / "m").exists():
        converted_parameters(folder)
        assert (folder / "m" / "dict.txt").stat().st_size
        shutil.rmtree(folder / "m")


def digests(folder: Path) -> dict[str, str]:
    """Of all files but logs."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.suffix != ".log"
    }


def quickstart(folder: Path) -> list[str]:
    """In a copy of what git knows, made by the first call."""
    copy = folder / "checkout"
    if not (copy / "scripts").exists():
        files = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
        ).stdout
        for name in files.decode().split("\0")[:-1]:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    return ["bash", str(copy / "scripts" / "quickstart.sh")]


def quickstart_results(folder: Path) -> str:
    """The closing table's numbers."""
    return (folder / "checkout/.quickstart/results/results.json").read_text()


if __name__ == "__main__":
    sys.exit(main())
