"""The tasks of GLUE (Wang et al., ICLR 2019): one row each, for every script of this folder.

Imports nothing that takes time to load.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ENTAILMENT = ("entailment", "not_entailment")
#: In the order of RoBERTa's released MNLI model.
NLI = ("contradiction", "neutral", "entailment")
#: What the similarity of STS-B may be.
LOWEST, HIGHEST = 0.0, 5.0


class Split(NamedTuple):
    """A part of a task.

    Attributes:
        name: what fairseq knows it by: train, valid, valid1, test, test1, test2.
        files: where it may lie, from the folder of the GLUE download; the first there is counts.
        count: examples in the official data.
        submission: for test sets, the file that the leaderboard takes.
    """

    name: str
    files: tuple[str, ...]
    count: int
    submission: str = ""


class Task(NamedTuple):
    """A row of the table.

    Attributes:
        name: official name, and folder.
        sentences: columns of the sentences, by the header.
        label: column of the label, by the header.
        labels: its words, in the order of the model's outputs; none for regression.
        metric: what picks the best epoch and what the paper reports.
        metrics: all that are logged.
        splits: train first.
        headless: columns of training and validation files that have no header.
    """

    name: str
    sentences: tuple[str, ...]
    label: str
    labels: tuple[str, ...]
    metric: str
    metrics: tuple[str, ...]
    splits: tuple[Split, ...]
    headless: tuple[str, ...] = ()

    @property
    def config(self) -> str:
        """Name of its YAML file."""
        return self.name.lower().replace("-", "_")

    @property
    def tests(self) -> list[Split]:
        """What the leaderboard takes predictions of."""
        return [split for split in self.splits if split.submission]


def _splits(name: str, train: int, valid: int, test: int) -> tuple[Split, ...]:
    """Three files in the task's folder."""
    return (
        Split("train", (f"{name}/train.tsv",), train),
        Split("valid", (f"{name}/dev.tsv",), valid),
        Split("test", (f"{name}/test.tsv",), test, f"{name}.tsv"),
    )


ACCURACY = ("accuracy",)
BINARY = ("accuracy", "f1", "mcc")

TASKS = {
    task.name: task
    for task in (
        Task(
            "CoLA",
            ("sentence",),
            "label",
            ("0", "1"),
            "mcc",
            BINARY,
            _splits("CoLA", 8_551, 1_043, 1_063),
            headless=("source", "label", "mark", "sentence"),
        ),
        Task(
            "SST-2",
            ("sentence",),
            "label",
            ("0", "1"),
            "accuracy",
            BINARY,
            _splits("SST-2", 67_349, 872, 1_821),
        ),
        Task(
            "MRPC",
            ("#1 String", "#2 String"),
            "Quality",
            ("0", "1"),
            "accuracy",
            BINARY,
            # As prepared by GLUE's download script, or as Microsoft gives them (readers.py).
            (
                Split("train", ("MRPC/train.tsv", "MRPC/msr_paraphrase_train.txt"), 3_668),
                Split("valid", ("MRPC/dev.tsv", "MRPC/msr_paraphrase_train.txt"), 408),
                Split(
                    "test", ("MRPC/test.tsv", "MRPC/msr_paraphrase_test.txt"), 1_725, "MRPC.tsv"
                ),
            ),
        ),
        Task(
            "STS-B",
            ("sentence1", "sentence2"),
            "score",
            (),
            "pearson",
            ("pearson", "spearman"),
            _splits("STS-B", 5_749, 1_500, 1_379),
        ),
        Task(
            "QQP",
            ("question1", "question2"),
            "is_duplicate",
            ("0", "1"),
            "accuracy",
            BINARY,
            _splits("QQP", 363_846, 40_430, 390_965),
        ),
        Task(
            "MNLI",
            ("sentence1", "sentence2"),
            "gold_label",
            NLI,
            "accuracy",
            ACCURACY,
            (
                Split("train", ("MNLI/train.tsv",), 392_702),
                Split("valid", ("MNLI/dev_matched.tsv",), 9_815),
                Split("valid1", ("MNLI/dev_mismatched.tsv",), 9_832),
                Split("test", ("MNLI/test_matched.tsv",), 9_796, "MNLI-m.tsv"),
                Split("test1", ("MNLI/test_mismatched.tsv",), 9_847, "MNLI-mm.tsv"),
                # The diagnostic set, which the model of MNLI answers.
                Split("test2", ("diagnostic/diagnostic.tsv", "AX/AX.tsv"), 1_104, "AX.tsv"),
            ),
        ),
        Task(
            "QNLI",
            ("question", "sentence"),
            "label",
            ENTAILMENT,
            "accuracy",
            ACCURACY,
            _splits("QNLI", 104_743, 5_463, 5_463),
        ),
        Task(
            "RTE",
            ("sentence1", "sentence2"),
            "label",
            ENTAILMENT,
            "accuracy",
            ACCURACY,
            _splits("RTE", 2_490, 277, 3_000),
        ),
        Task(
            "WNLI",
            ("sentence1", "sentence2"),
            "label",
            ("0", "1"),
            "accuracy",
            BINARY,
            _splits("WNLI", 635, 71, 146),
        ),
    )
}


def find_file(glue: Path, split: Split) -> Path | None:
    """The file of a split, or None."""
    return next((glue / name for name in split.files if (glue / name).is_file()), None)
