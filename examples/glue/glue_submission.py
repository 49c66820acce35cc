"""Check a submission to the GLUE leaderboard before it is uploaded.

python -m examples.glue.glue_submission submission.zip
"""

import sys
import zipfile
import zlib
from pathlib import Path

from examples.glue.tasks import HIGHEST, LOWEST, TASKS, Task, is_similarity

HEADER = "index\tprediction"
#: The files of a submission, with the task and the test set of each.
FILES = {split.submission: (task, split) for task in TASKS.values() for split in task.tests}
INCOMPLETE = "missing, but the leaderboard requires all files"


def lines_of(predictions: list[str]) -> str:
    """The text of a file: a header, then the number and the prediction of every example."""
    rows = (f"{index}\t{prediction}" for index, prediction in enumerate(predictions))
    return "\n".join((HEADER, *rows, ""))


def faults_of(name: str, text: str) -> list[str]:
    """What the leaderboard would refuse in a file; at most one fault of each kind."""
    task, split = FILES[name]
    header, *rows = text.rstrip("\n").split("\n")
    faults = [] if header == HEADER else [f"the header is {header!r}, but must be {HEADER!r}"]
    if len(rows) != split.count:
        faults.append(f"{len(rows):,} predictions, but the test set has {split.count:,} examples")
    for index, row in enumerate(rows):
        if why := fault_of(row, index, task):
            return [*faults, f"line {index + 2}: {why}"]
    return faults


def fault_of(row: str, index: int, task: Task) -> str | None:
    """What is wrong with a row, or None."""
    number, tab, prediction = row.partition("\t")
    if not tab or number != str(index):
        return f"{row!r} must begin with {index} and a tab"
    if task.labels:
        known = prediction in task.labels
        return None if known else f"{prediction!r} is not one of {', '.join(task.labels)}"
    if is_similarity(prediction):
        return None
    return f"{prediction!r} is not a number from {LOWEST:g} to {HIGHEST:g}"


def check(path: str | Path) -> tuple[list[str], list[str]]:
    """Check a zip file.

    Returns:
        What is wrong with its files, and the names of the files that are missing.
    """
    faults = []
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            for name in names:
                if name not in FILES:
                    faults.append(f"{name}: not a file of a submission")
                elif names.count(name) > 1:
                    faults.append(f"{name}: more than once")
                else:
                    text = archive.read(name).decode("utf-8", errors="replace")
                    faults += [f"{name}: {fault}" for fault in faults_of(name, text)]
    # An encrypted file is a RuntimeError; so is another kind of compression.
    except (zipfile.BadZipFile, zlib.error, RuntimeError, OSError, EOFError) as error:
        return [f"{path} cannot be read: {error}"], []
    return faults, [name for name in FILES if name not in names]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("error: one argument is needed: a zip file.")
    faults, missing = check(sys.argv[1])
    faults += [f"{INCOMPLETE}: {', '.join(missing)}"] if missing else []
    if faults:
        sys.exit("\n".join(f"error: {fault}" for fault in faults))
    print(f"{sys.argv[1]} is complete and has the right format.")
