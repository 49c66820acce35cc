"""Kill commands at random moments and damage files at random places; see that nothing is lost.

    python -m tests.stress --out FOLDER [--kills 20] [--tries 500] [--only sweep,files] [--seed 1]

Not part of the test suite: all of it takes an hour on two cores. What a part has found is kept in
FOLDER/NAME.json; the tables of all parts found there stand at the end, and in FOLDER/stress.md.

Each command (`tests.stress.commands`) is killed with SIGKILL, with all that it has started, until
it was killed as often as asked for; where it gets to its end before, what it made is compared with
what an undisturbed run has made, and it starts over.

    training      repair_checkpoints of scripts/steps.sh, then fairseq-train, resumed by the same
                  command: all final parameters, and Adam's state
    ranks         the same through scripts/train_distributed.sh with two processes
    preprocessing fairseq-preprocess as a step of scripts/steps.sh: all files
    glue          examples/glue/preprocess_glue.sh, MNLI: all files
    sweep         examples/glue/sweep.py, two learning rates: results and table
    conversion    scripts/convert_checkpoint.py: the whole directory or none
    quickstart    scripts/quickstart.sh in a copy, with a tenth of the updates: the closing table

Then files are cut, changed and lengthened, and texts of any characters are given
(`tests.stress.damage`):

    files         each kind of file that something of ours reads
    inputs        texts for the hub and rows for GLUE's readers
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
from pathlib import Path
from typing import Any

from tests.stress import commands, damage, killing
from tupe_fairseq.files import replacing

TRIED = {"files": damage.FILES, "inputs": damage.INPUTS}


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 where nothing was lost."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to work in")
    parser.add_argument("--kills", type=int, default=20, help="of each command (default: 20)")
    parser.add_argument("--tries", type=int, default=500, help="of each file and input (500)")
    parser.add_argument("--only", help="names of parts, separated by commas (default: all)")
    parser.add_argument("--seed", type=int, default=1, help="of moments and damage (default: 1)")
    arguments = parser.parse_args(argv)
    # fairseq tells of everything it does.
    logging.disable(logging.WARNING)
    out = arguments.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    names = arguments.only.split(",") if arguments.only else [*commands.NAMES, *TRIED]
    if unknown := {*names} - {*commands.NAMES, *TRIED}:
        parser.error(f"--only has {', '.join(sorted(unknown))}, which is no part.")
    for case in commands.cases(out, {*names} - TRIED.keys()):
        killing.disturb(case, out, arguments.kills, random.Random(arguments.seed))
        keep(out, case.name, case.found())
    for name in (name for name in names if name in TRIED):
        found = damage.attempt(TRIED[name], out / name, arguments.tries, arguments.seed)
        keep(out, name, found)
    return report(out)


def keep(out: Path, name: str, found: dict[str, Any]) -> None:
    """Write what a part has found."""
    with replacing(out / f"{name}.json") as aside:
        aside.write_text(json.dumps(found, indent=1) + "\n")


def report(out: Path) -> int:
    """Print the tables of all parts; returns 0 where nothing was lost."""
    found = {
        name: json.loads((out / f"{name}.json").read_text())
        for name in (*commands.NAMES, *TRIED)
        if (out / f"{name}.json").exists()
    }
    tables = [killing.table({n: f for n, f in found.items() if n not in TRIED})]
    tables += [damage.table(found[name], name) for name in TRIED if name in found]
    text = "\n".join(tables)
    with replacing(out / "stress.md") as aside:
        aside.write_text(text)
    print(text)
    return int(any(each["lost"] for each in found.values()))


if __name__ == "__main__":
    sys.exit(main())
