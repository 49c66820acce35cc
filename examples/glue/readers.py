"""Read the official TSV files of GLUE in their different forms.

They are not CSV: quotes are ordinary characters, and only a line feed ends a line. CoLA has no
header except in its test set; test sets have no labels; QQP has rows without their last columns.
MRPC is written by GLUE's download script, or consists of Microsoft's two text files and the
script's `dev_ids.tsv` or `mrpc_dev_ids.tsv`, which lists the pairs of the validation set.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from examples.glue.tasks import ONE, TASKS, Split, Task, find_file, is_similarity
from examples.glue.tasks import PAIR as SENTENCES
from tupe_fairseq import UsageError
from tupe_fairseq.base.texts import decoded

Row = dict[str, str]
MICROSOFT = "msr_paraphrase_"
#: Columns of Microsoft's files that identify a pair.
PAIR = ("#1 ID", "#2 ID")
DEV_IDS = ("dev_ids.tsv", "mrpc_dev_ids.tsv")
#: Bytes; the longest official line, with parse trees, has about ten thousand.
LONGEST_LINE = 1 << 20


class Example(NamedTuple):
    """One or two sentences and the label, which is None in test sets."""

    sentences: tuple[str, ...]
    label: str | None


class Read(NamedTuple):
    """The examples of a split, and the number of dropped rows by reason."""

    path: Path
    examples: list[Example]
    left_out: Counter[str]


def find_task(folder: Path, name: str) -> Task:
    """A task of GLUE, or one of your own, in FOLDER/NAME/train.tsv and FOLDER/NAME/dev.tsv.

    Their header names the columns `sentence`, or `sentence1` and `sentence2`, and `label`. The
    labels are those of train.tsv, in the order of the alphabet.

    Raises:
        UsageError: neither of them.
    """
    if name in TASKS:
        return TASKS[name]
    path = folder / name / "train.tsv"
    if not path.is_file():
        raise UsageError(
            f"TASK is {name!r}, but must be one of: {', '.join(TASKS)}, or the name of a folder "
            f"in {folder} with train.tsv and dev.tsv."
        )
    sentences = ONE
    labels = set()
    for row in read_rows(path):
        if "" not in row:
            sentences = SENTENCES if "sentence1" in row else ONE
            labels.add(row.get("label", ""))
    splits = (Split("train", (f"{name}/train.tsv",)), Split("valid", (f"{name}/dev.tsv",)))
    return Task(name, sentences, "label", tuple(sorted(labels - {""})), splits)


def read_split(glue: Path, task: Task, split: Split) -> Read | None:
    """Read a split, or return None if the download does not contain it.

    Rows without a sentence or label are dropped and counted, except in test sets, where each row
    needs a prediction.

    Raises:
        UsageError: a file does not have the official form.
    """
    path = find_file(glue, split)
    if path is None:
        return None
    examples = []
    left_out = Counter()
    needed = task.sentences if split.submission else (*task.sentences, task.label)
    rows = read_rows(path, "" if split.submission else "\t".join(task.headless))
    shared = path.name.startswith(MICROSOFT) and not split.submission
    rows = check_columns(rows, (*PAIR, *needed) if shared else needed, path)
    if shared:
        rows = filter(chosen_pairs(path.parent, split.name), rows)
    for number, row in enumerate(rows):
        if split.submission:
            check_index(row, number, path)
        elif reason := fault(row, task):
            left_out[reason] += 1
            continue
        label = None if split.submission else row[task.label]
        examples.append(Example(tuple(row[column] for column in task.sentences), label))
    if not examples:
        raise UsageError(f"{path} holds no example.")
    return Read(path, examples, left_out)


def read_rows(path: Path, header: str = "") -> Iterator[Row]:
    """Rows by column without empty lines; missing columns of a row are empty.

    Args:
        path: of a TSV file, UTF-8 with or without byte order mark, lines ending in LF or CR LF.
        header: names of the columns, if the file has no header.

    Raises:
        UsageError: the file is not UTF-8, or a line is too long.
    """
    with path.open("rb") as file:
        lines = decoded(read_lines(file, path), str(path))
        columns = (header or next(lines, "")).split("\t")
        for line in filter(None, lines):
            fields = line.split("\t")
            row = dict(zip(columns, fields, strict=False))
            # A row with too many columns has a tab in an unknown column.
            yield row if len(fields) == len(columns) else mended(row, columns, len(fields))


def read_lines(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Lines with their ends; a UsageError for a longer line than GLUE has limits the memory."""
    while line := file.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            raise UsageError(f"{path} is not a file of GLUE: a line exceeds {LONGEST_LINE} bytes.")
        yield line


def check_columns(rows: Iterable[Row], needed: tuple[str, ...], path: Path) -> Iterator[Row]:
    """The rows, after checking the columns of the first; all have the same."""
    for number, row in enumerate(rows):
        if number == 0 and not {*needed} <= row.keys():
            missing = ", ".join(column for column in needed if column not in row)
            raise UsageError(f"{path} has no column {missing}; it has {', '.join(row)}.")
        yield row


def mended(row: Row, columns: list[str], found: int) -> Row:
    """A row with too few or too many columns, marked for `fault` by an entry without a name."""
    why = "too few columns" if found < len(columns) else "too many columns"
    return {column: row.get(column, "") for column in columns} | {"": why}


def check_index(row: Row, number: int, path: Path) -> None:
    """Refuse a test set with missing or moved rows: the leaderboard uses their numbers."""
    index = row.get("index", row.get("id", str(number)))
    if index != str(number):
        raise UsageError(f"{path} is not the official file: row {number} has the index {index!r}.")


def fault(row: Row, task: Task) -> str | None:
    """Why a row is not an example, or None."""
    if "" in row:
        return row[""]
    label = row[task.label]
    if not label:
        return "no label"
    known = label in task.labels if task.labels else is_similarity(label)
    return None if known else f"label {label!r}"


def chosen_pairs(folder: Path, split: str) -> Callable[[Row], bool]:
    """A function that selects the rows of a split in msr_paraphrase_train.txt.

    Raises:
        UsageError: no file lists the pairs of the validation set.
    """
    path = next((folder / name for name in DEV_IDS if (folder / name).is_file()), None)
    if path is None:
        raise UsageError(
            f"{folder} holds {MICROSOFT}train.txt, but no {DEV_IDS[0]}, which lists the pairs of "
            "the validation set: download it as GLUE's download script does."
        )
    with path.open("rb") as file:
        pairs = {tuple(line.split()) for line in decoded(read_lines(file, path), str(path))}
    valid = split == "valid"
    return lambda row: (tuple(row[column] for column in PAIR) in pairs) == valid
