"""Check a submission to the GLUE leaderboard before it is uploaded.

python examples/glue/glue_submission.py submission.zip
"""

from __future__ import annotations

import math
import sys
import zipfile
from pathlib import Path

from examples.glue.tasks import HIGHEST, LOWEST, TASKS, Split, Task

HEADER = "index\tprediction"
#: The files of a submission, with the task and the test set of each.
FILES = {split.submission: (task, split) for task in TASKS.values() for split in task.tests}


def lines_of(predictions: list[str]) -> str:
    """The text of a file: a header, then the number and the prediction of every example."""
    rows = (f"{index}\t{prediction}" for index, prediction in enumerate(predictions))
    return "\n".join((HEADER, *rows, ""))


def faults_of(name: str, text: str) -> list[str]:
    """What the leaderboard would refuse in a file; at most one of each kind."""
    task, split = FILES[name]
    header, *rows = text.rstrip("\n").split("\n")
    faults = [] if header == HEADER else [f"the header is {header!r}, but must be {HEADER!r}"]
    if len(rows) != split.count:
        faults.append(f"{len(rows):,} predictions, but the test set has {split.count:,} examples")
    for index, row in enumerate(rows):
        if why := fault_of(row, index, task, split):
            return [*faults, f"line {index + 2}: {why}"]
    return faults


def fault_of(row: str, index: int, task: Task, split: Split) -> str | None:
    """What is wrong with a row, or None."""
    number, tab, prediction = row.partition("\t")
    if not tab or number != str(index):
        return f"{row!r} must begin with {index} and a tab"
    if task.labels:
        known = prediction in task.labels
        return None if known else f"{prediction!r} is none of {', '.join(task.labels)}"
    try:
        value = float(prediction)
    except ValueError:
        value = math.nan
    # Also False for NaN.
    inside = LOWEST <= value <= HIGHEST
    return None if inside else f"{prediction!r} is no number from {LOWEST:g} to {HIGHEST:g}"


def check(path: str | Path) -> tuple[list[str], list[str]]:
    """Look at a submission.

    Returns:
        What is wrong with its files, and the names of the files that are missing.
    """
    faults = []
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            for name in names:
                if name not in FILES:
                    faults.append(f"{name}: no file of a submission")
                elif names.count(name) > 1:
                    faults.append(f"{name}: more than once")
                else:
                    text = archive.read(name).decode("utf-8", errors="replace")
                    faults += [f"{name}: {fault}" for fault in faults_of(name, text)]
    except (zipfile.BadZipFile, OSError) as error:
        return [f"{path} cannot be read: {error}"], []
    return faults, [name for name in FILES if name not in names]


def main(path: str) -> None:
    """See the module's text."""
    faults, missing = check(path)
    if missing:
        faults.append(f"missing, and the leaderboard takes all or nothing: {', '.join(missing)}")
    if faults:
        sys.exit("\n".join(f"error: {fault}" for fault in faults))
    print(f"{path} is complete and of the right form.")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("error: one argument is needed: a zip file.")
    main(sys.argv[1])
