"""Kill commands at random moments, and damage files at random places: nothing may be lost.

    python -m tests.stress --out FOLDER [--kills 20] [--tries 500] [--only sweep,files] [--seed 1]

Not part of the test suite, because it takes long. The results of a part are written
to FOLDER/NAME.json. At the end the tables of all parts in FOLDER are printed, and written to
FOLDER/stress.md.

A command (`tests.stress.commands`) and all processes that it has started are killed by SIGKILL
until --kills is reached. Whenever it reaches its end, its output is compared with that of an
undisturbed run, and it starts over. The commands, and what is compared:

    training      repair_checkpoints of scripts/steps.sh and fairseq-train, resumed by the same
                  command: all final parameters and Adam's state
    ranks         the same by scripts/train_distributed.sh with two processes
    prepare       examples/pretraining/prepare.sh on raw text: all files
    glue          examples/glue/preprocess_glue.sh for MNLI: all files
    sweep         examples/glue/sweep.py with two learning rates: results and table
    conversion    scripts/convert_checkpoint.py: the directory, which is complete or missing
    quickstart    scripts/quickstart.sh in a copy, with a tenth of the updates: the final table

Damaged files and random texts are used many times (`tests.stress.damage`). They must be read, or
raise an error of one line:

    files         each kind of file that the package or the examples read
    inputs        texts for the hub and rows for GLUE's readers
"""

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
    """Returns the exit status: 0 if nothing was lost."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to work in")
    parser.add_argument("--kills", type=int, default=20, help="of each command (default: 20)")
    parser.add_argument("--tries", type=int, default=500, help="of each file and input (500)")
    parser.add_argument("--only", help="names of parts, separated by commas (default: all)")
    parser.add_argument("--seed", type=int, default=1, help="of moments and damage (default: 1)")
    arguments = parser.parse_args(argv)
    # fairseq logs each file that it loads.
    logging.disable(logging.WARNING)
    out = arguments.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    names = arguments.only.split(",") if arguments.only else [*commands.NAMES, *TRIED]
    if unknown := {*names} - {*commands.NAMES, *TRIED}:
        parser.error(f"--only has {', '.join(sorted(unknown))}, which are not parts.")
    for case in commands.cases(out, {*names} - TRIED.keys()):
        killing.disturb(case, out, arguments.kills, random.Random(arguments.seed))
        keep(out, case.name, case.found())
    for name in (name for name in names if name in TRIED):
        found = damage.attempt(TRIED[name], out / name, arguments.tries, arguments.seed)
        keep(out, name, found)
    return report(out)


def keep(out: Path, name: str, found: dict[str, Any]) -> None:
    """Write the results of a part."""
    with replacing(out / f"{name}.json") as aside:
        aside.write_text(json.dumps(found, indent=1) + "\n")


def report(out: Path) -> int:
    """Print the tables of all parts; returns 0 if nothing was lost."""
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
