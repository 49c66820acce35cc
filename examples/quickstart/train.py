"""Train one or more encodings side by side with fairseq-train, and show their progress.

    python -m examples.quickstart.train OUT ENCODING... -- FLAGS

Each ENCODING is trained with the same FLAGS in OUT/ENCODING, one process per core, from its last
checkpoint if there is one. Its output is appended to OUT/ENCODING/log.txt. Each validation is
printed in one line.
"""

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import torch

from examples.quickstart.progress import telling, validations
from examples.shared import script
from examples.shared.runner import Run, arguments, runner
from tupe_fairseq import UsageError
from tupe_fairseq.base.machine import cores


def trained(folder: Path) -> dict[str, Any]:
    """The validations of a training.

    Raises:
        UsageError: fairseq-train wrote no checkpoint.
    """
    if not (folder / "checkpoint_last.pt").exists():
        raise UsageError("fairseq-train wrote no checkpoint")
    return {"validations": validations(folder / "log.txt")}


def main() -> None:
    """See the module's docstring."""
    end = sys.argv.index("--")
    out, *encodings = sys.argv[1:end]
    flags = [*sys.argv[end + 1 :], "--log-format", "json", "--log-interval", "10"]
    if not torch.cuda.is_available():
        flags.append("--cpu")
    if len(encodings) > 1:
        # Equal in all calls, because the number of threads changes rounding.
        os.environ["OMP_NUM_THREADS"] = "1"
    words = ["--out", out, "--workers", str(min(len(encodings), cores()))]
    args = arguments(argparse.ArgumentParser(), words, "examples.quickstart.train")
    runs = []
    for name in encodings:
        own = ["--position-encoding", name, "--save-dir", f"{out}/{name}"]
        command = ["fairseq-train", *flags, *own]
        print(f"   $ {shlex.join(command)}", flush=True)
        runs.append(Run(name, {"encoding": name}, [command], trained))
    logs = {name: Path(out, name, "log.txt") for name in encodings}
    updates = int(flags[flags.index("--max-update") + 1])
    with runner(args, {}, lambda out: None) as execute, telling(logs, updates):
        execute(runs)


if __name__ == "__main__":
    script.run(main)
