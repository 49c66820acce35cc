"""The tasks of GLUE (Wang et al., ICLR 2019), one row each, for all scripts of this folder.

Imports nothing that takes time to load.
"""

import math
from pathlib import Path
from typing import NamedTuple

BINARY = ("0", "1")
ENTAILMENT = ("entailment", "not_entailment")
#: In the order of RoBERTa's released MNLI model.
NLI = ("contradiction", "neutral", "entailment")
#: Bounds of the similarity of STS-B.
LOWEST = 0.0
HIGHEST = 5.0


class Split(NamedTuple):
    """A part of a task.

    Attributes:
        name: fairseq's name: train, valid, valid1, test, test1, test2.
        files: possible places in the GLUE download; the first that exists is read.
        count: number of examples in the official data; 0: there are none.
        submission: for test sets, name of the file that the leaderboard accepts.
    """

    name: str
    files: tuple[str, ...]
    count: int = 0
    submission: str = ""


class Task(NamedTuple):
    """A row of the table.

    Attributes:
        name: official name, and name of the folder.
        sentences: columns of the sentences in the header.
        label: column of the label in the header.
        labels: values of the label in the order of the model's outputs; empty for regression.
        splits: train first.
        metric: selects the best epoch; the paper reports it.
        headless: columns of training and validation files without a header.
    """

    name: str
    sentences: tuple[str, ...]
    label: str
    labels: tuple[str, ...]
    splits: tuple[Split, ...]
    metric: str = "accuracy"
    headless: tuple[str, ...] = ()

    @property
    def metrics(self) -> tuple[str, ...]:
        """All metrics that `glue_prediction` logs."""
        if not self.labels:
            return ("pearson", "spearman")
        return ("accuracy", "f1", "mcc") if self.labels == BINARY else ("accuracy",)

    @property
    def tests(self) -> list[Split]:
        """Splits for which the leaderboard accepts predictions."""
        return [split for split in self.splits if split.submission]


def _splits(name: str, train: int, valid: int, test: int) -> tuple[Split, ...]:
    """Three files in the task's folder."""
    return (
        Split("train", (f"{name}/train.tsv",), train),
        Split("valid", (f"{name}/dev.tsv",), valid),
        Split("test", (f"{name}/test.tsv",), test, f"{name}.tsv"),
    )


#: Written by GLUE's download script, or by Microsoft (see readers.py).
MRPC = (
    Split("train", ("MRPC/train.tsv", "MRPC/msr_paraphrase_train.txt"), 3_668),
    Split("valid", ("MRPC/dev.tsv", "MRPC/msr_paraphrase_train.txt"), 408),
    Split("test", ("MRPC/test.tsv", "MRPC/msr_paraphrase_test.txt"), 1_725, "MRPC.tsv"),
)
MNLI = (
    Split("train", ("MNLI/train.tsv",), 392_702),
    Split("valid", ("MNLI/dev_matched.tsv",), 9_815),
    Split("valid1", ("MNLI/dev_mismatched.tsv",), 9_832),
    Split("test", ("MNLI/test_matched.tsv",), 9_796, "MNLI-m.tsv"),
    Split("test1", ("MNLI/test_mismatched.tsv",), 9_847, "MNLI-mm.tsv"),
    # The diagnostic set, which is answered by the model of MNLI.
    Split("test2", ("diagnostic/diagnostic.tsv", "AX/AX.tsv"), 1_104, "AX.tsv"),
)
COLA = ("source", "label", "mark", "sentence")
ONE = ("sentence",)
PAIR = ("sentence1", "sentence2")

# fmt: off
TASKS = {task.name: task for task in (
    Task("CoLA", ONE, "label", BINARY, _splits("CoLA", 8_551, 1_043, 1_063), "mcc", COLA),
    Task("SST-2", ONE, "label", BINARY, _splits("SST-2", 67_349, 872, 1_821)),
    Task("MRPC", ("#1 String", "#2 String"), "Quality", BINARY, MRPC),
    Task("STS-B", PAIR, "score", (), _splits("STS-B", 5_749, 1_500, 1_379), "pearson"),
    Task("QQP", ("question1", "question2"), "is_duplicate", BINARY,
         _splits("QQP", 363_846, 40_430, 390_965)),
    Task("MNLI", PAIR, "gold_label", NLI, MNLI),
    Task("QNLI", ("question", "sentence"), "label", ENTAILMENT,
         _splits("QNLI", 104_743, 5_463, 5_463)),
    Task("RTE", PAIR, "label", ENTAILMENT, _splits("RTE", 2_490, 277, 3_000)),
    Task("WNLI", PAIR, "label", BINARY, _splits("WNLI", 635, 71, 146)),
)}
# fmt: on


def task_of(name: str) -> Task:
    """A task of GLUE, or what the name of one of your own says (`readers.find_task`)."""
    # Its metrics are those of two classes if its labels are 0 and 1.
    return TASKS.get(name) or Task(name, (), "label", BINARY, ())


def find_file(glue: Path, split: Split) -> Path | None:
    """The file of a split, or None."""
    return next((glue / name for name in split.files if (glue / name).is_file()), None)


def is_similarity(word: str) -> bool:
    """Whether a label or a prediction is a number that STS-B allows."""
    try:
        value = float(word)
    except ValueError:
        return False
    return math.isfinite(value) and LOWEST <= value <= HIGHEST
