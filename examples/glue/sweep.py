r"""Fine-tune over learning rates, seeds, tasks and pre-trained models: one process a run.

    python -m examples.glue.sweep --data glue --out outputs/sweep \
        --models tupe_a=a/checkpoint_best.pt learned=b/checkpoint_best.pt --tasks CoLA RTE

Each run is a call of finetune.sh in OUT/runs/MODEL/TASK/RATE/SEED. OUT/results.jsonl gets a line
for each completed run; collect.py prints the paper's table of it.

The same command continues with the runs that have no line yet, also after a kill. A run that fails
is repeated, and named at the end; the next call tries it again.
"""

import argparse
import itertools
import json
import os
import queue
import subprocess
import threading
import zlib
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tqdm import tqdm

from examples.glue.pretrained import overrides
from examples.glue.results import append, read_results
from examples.glue.tasks import TASKS
from examples.shared import script
from examples.shared.jobs import call, side_by_side
from examples.shared.locks import locked
from tupe_fairseq import UsageError
from tupe_fairseq.files import replacing
from tupe_fairseq.machine import cores

FINETUNE = Path(__file__).with_name("finetune.sh")
RATES = ("2e-05", "3e-05", "4e-05", "5e-05")
SEEDS = (1, 2, 3, 4, 5)


class Run(NamedTuple):
    """What identifies a run of a sweep."""

    model: str
    task: str
    rate: str
    seed: int

    def __str__(self) -> str:
        return "/".join(map(str, self))

    def as_json(self) -> dict[str, Any]:
        """The first entries of its line of results."""
        return {**self._asdict(), "rate": float(self.rate)}


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--data", type=Path, required=True, help="output of preprocess_glue.sh: TASK-bin, ...")
    add("--models", nargs="+", required=True, metavar="NAME=CHECKPOINT", help="pre-trained models")
    add("--out", type=Path, required=True, help="directory of runs and results")
    add("--tasks", nargs="+", default=list(TASKS), metavar="TASK", help="default: all nine")
    add("--rates", nargs="+", default=RATES, metavar="RATE", help=f"default: {' '.join(RATES)}")
    add("--seeds", nargs="+", type=int, default=SEEDS, metavar="SEED", help="default: 1 2 3 4 5")
    add("--workers", type=int, default=1, help="runs at a time, spread over all GPUs (default: 1)")
    add("--retries", type=int, default=1, help="repetitions of a failed run (default: 1)")
    add("--keep-models", action="store_true", help="keep the best model of each run")
    add("--overrides", nargs="+", default=[], metavar="KEY=VALUE", help="of config/TASK.yaml")
    return parser.parse_args(words)


class Sweep:
    """The runs of a sweep, and how each is executed."""

    def __init__(self, args: argparse.Namespace):
        self.args, self.out = args, args.out.absolute()
        self.results = self.out / "results.jsonl"
        self.models = named_checkpoints(args.models)
        rates = [f"{positive(rate):g}" for rate in args.rates]
        words = itertools.product(self.models, args.tasks, rates, args.seeds)
        # Without duplicates, whose scores would count twice in the median.
        self.runs = list(dict.fromkeys(Run(*each) for each in words))
        # Read once instead of in every run.
        self.described = {
            (model, task): overrides(self.data(task), path)
            for model, path in self.models.items()
            for task in args.tasks
        }
        self.devices: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        for device in itertools.islice(itertools.cycle(visible_devices()), args.workers):
            self.devices.put(device)
        self.failed: list[Run] = []
        self.writing = threading.Lock()

    def data(self, task: str) -> Path:
        """The folder of a task's data."""
        if task not in TASKS:
            raise UsageError(f"--tasks has {task!r}, but the tasks are: {', '.join(TASKS)}.")
        return self.args.data.absolute() / f"{task}-bin"

    def folder(self, run: Run) -> Path:
        """The folder of a run."""
        return self.out / "runs" / run.model / run.task / run.rate / str(run.seed)

    def command(self, run: Run) -> list[object]:
        """The call of finetune.sh, which checks its arguments and resumes."""
        words = ["bash", FINETUNE, self.data(run.task), self.models[run.model], self.folder(run)]
        words += self.described[run.model, run.task]
        words += [f"optimization.lr=[{run.rate}]", f"common.seed={run.seed}"]
        return [*words, *self.args.overrides]

    def pending(self) -> list[Run]:
        """The runs without a result."""
        key = ("model", "task", "rate", "seed")
        done = {tuple(line[k] for k in key) for line in read_results(self.results)}
        return [run for run in self.runs if tuple(run.as_json().values()) not in done]

    def do(self, run: Run) -> None:
        """Execute a run, again if it fails, and add its line to the results."""
        device = self.devices.get()
        try:
            done = any(self._call(run, device) == 0 for _ in range(1 + self.args.retries))
        finally:
            self.devices.put(device)
        with self.writing:
            if done:
                self.record(run)
            else:
                self.failed.append(run)
                tqdm.write(f"failed: {run}: {self.why(run)}")

    def _call(self, run: Run, device: str | None) -> int:
        folder = self.folder(run)
        folder.mkdir(parents=True, exist_ok=True)
        settings = os.environ | ({"CUDA_VISIBLE_DEVICES": device} if device else {})
        threads = max(1, cores() // self.args.workers)
        settings.setdefault("OMP_NUM_THREADS", str(threads))
        with (folder / "output.log").open("w") as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            return call(self.command(run), env=settings, **streams).returncode

    def record(self, run: Run) -> None:
        """Add a run's line to the results, and remove its model."""
        model = self.folder(run) / "model"
        append(self.results, run.as_json() | json.loads((model / "result.json").read_text()))
        if not self.args.keep_models:
            (model / "model.pt").unlink(missing_ok=True)

    def __call__(self) -> list[Run]:
        """Execute the pending runs; return those that failed."""
        jobs = {str(run): partial(self.do, run) for run in self.pending()}
        total = len(self.runs)
        with tqdm(total=total, initial=total - len(jobs), unit=" runs") as progress:
            side_by_side(jobs, self.args.workers, progress)
        return self.failed

    def why(self, run: Run) -> str:
        """The last line of a failed run's output."""
        log = self.folder(run) / "output.log"
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        return f"{lines[-1] if lines else 'no output'} (complete output: {log})"


def named_checkpoints(words: list[str]) -> dict[str, Path]:
    """Parse NAME=CHECKPOINT words."""
    models: dict[str, Path] = {}
    for word in words:
        name, sign, path = word.partition("=")
        if not (name and sign and path) or "/" in name or name in models:
            raise UsageError(f"--models has {word!r}; each must be NAME=CHECKPOINT, names once.")
        models[name] = Path(path).absolute()
    return models


def positive(rate: str) -> float:
    """Parse a learning rate."""
    try:
        value = float(rate)
    except ValueError:
        value = 0
    if not 0 < value < float("inf"):
        raise UsageError(f"--rates has {rate!r}; each must be a number above 0.")
    return value


def visible_devices() -> list[str | None]:
    """Values of CUDA_VISIBLE_DEVICES, one for each GPU; [None] without a GPU."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return (given.split(",") if given else [str(i) for i in range(count)]) if count else [None]


def check_settings(sweep: Sweep) -> None:
    """Refuse to mix results of different checkpoints, data or overrides.

    Raises:
        UsageError: one of these has changed since the last call.
    """
    path = sweep.out / "sweep.json"
    # Without a result there is nothing to mix; finetune.sh starts over if its arguments change.
    known = path.exists() and read_results(sweep.results)
    old = json.loads(path.read_text()) if known else {}
    new = {"data": str(sweep.args.data.absolute()), "overrides": sweep.args.overrides}
    for name, checkpoint in sweep.models.items():
        with checkpoint.open("rb") as file:
            # The end of a checkpoint, a zip archive, lists the checksums of all its tensors.
            file.seek(-min(100_000, checkpoint.stat().st_size), os.SEEK_END)
            new[f"model {name}"] = f"{checkpoint} ({zlib.crc32(file.read()):08x})"
    for task in sweep.args.tasks:
        # The files whose change makes finetune.sh start over.
        files = (sweep.data(task) / name for name in ("task.json", "input0/dict.txt"))
        new[f"data of {task}"] = f"{zlib.crc32(b''.join(file.read_bytes() for file in files)):08x}"
    for key, value in new.items():
        if old.get(key, value) != value:
            raise UsageError(
                f"{sweep.out} has results of other settings: {key} was {old[key]}, but is "
                f"{value}; choose another --out."
            )
    with replacing(path) as aside:
        aside.write_text(json.dumps(old | new, indent=2) + "\n")


def main(args: argparse.Namespace) -> None:
    """See the module's docstring."""
    for name, least in (("workers", 1), ("retries", 0)):
        if (value := getattr(args, name)) < least:
            raise UsageError(f"--{name} is {value}, but must be at least {least}.")
    sweep = Sweep(args)
    with locked(sweep.out, wait=False) as lock:
        if lock is None:
            raise UsageError(f"another sweep is running in {sweep.out}.")
        check_settings(sweep)
        failed = sweep()
    print(f"results: {sweep.results}")
    if failed:
        raise UsageError(f"{len(failed)} runs failed: {', '.join(map(str, failed))}.")


if __name__ == "__main__":
    script.run(lambda: main(arguments()))
