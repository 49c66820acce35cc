"""All settings of study.py, by scale.

The report of `tiny` (tiny/report.md) has its times. `small` has not been run.
"""

from typing import NamedTuple

#: The paper's models: its name for each, and the encoding.
MODELS = {
    "learned": ("BERT-A", "learned"),
    "t5": ("BERT-R", "t5"),
    "tupe_a_tie_cls": ("TUPE-A tie-cls", "tupe_a+tie_cls=true"),
    "tupe_a": ("TUPE-A", "tupe_a"),
    "tupe_r": ("TUPE-R", "tupe_r"),
}
#: The model with which the others are compared.
BASELINE = "learned"
#: The small tasks of GLUE.
TASKS = ("CoLA", "SST-2", "MRPC", "STS-B", "RTE")


class Finetuning(NamedTuple):
    """Number of updates of a task, and examples per update."""

    updates: int
    batch: int = 32


class Scale(NamedTuple):
    """One row of the table."""

    #: Symbols of the sentencepiece model, which is trained on the text in lower case.
    vocabulary: int
    #: Share of the documents that is held out.
    valid_share: float
    arch: str
    #: Sequences per update, and tokens per sequence.
    batch_size: int
    updates: int
    lr: float
    #: Validations of a pre-training, and batches of each.
    validations: int
    valid_steps: int
    #: Tasks of GLUE; None: with the updates of the task's YAML file.
    tasks: dict[str, Finetuning | None]
    #: Learning rates of fine-tuning.
    rates: tuple[float, ...]
    fp16: bool = False
    #: Further flags for fairseq-train.
    flags: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (1, 2, 3)
    finetuning_seeds: tuple[int, ...] = (1,)
    tokens_per_sample: int = 128
    #: Maximal length of GLUE's examples.
    glue_tokens: int = 128


SCALES = {
    # A check of all steps.
    "smoke": Scale(
        vocabulary=100,
        valid_share=0.2,
        arch="tupe_roberta_tiny",
        batch_size=4,
        updates=4,
        lr=1e-3,
        validations=2,
        valid_steps=2,
        tasks={task: Finetuning(3, 4) for task in TASKS},
        rates=(1e-3,),
        flags=("--encoder-layers", "2", "--encoder-embed-dim", "32"),
    ),
    # Two CPU cores. With short sequences, `learned` leaves its initial plateau within the updates.
    "tiny": Scale(
        vocabulary=1000,
        valid_share=0.01,
        arch="tupe_roberta_tiny",
        tokens_per_sample=32,
        batch_size=32,
        updates=9600,
        lr=1e-3,
        validations=16,
        valid_steps=50,
        # Longer than the sequences: the later positions are trained in fine-tuning only.
        glue_tokens=64,
        tasks={
            "CoLA": Finetuning(400),  # 1.5 epochs
            "SST-2": Finetuning(500),  # a quarter of an epoch
            "MRPC": Finetuning(115),  # 1 epoch
            "STS-B": Finetuning(270),  # 1.5 epochs
            "RTE": Finetuning(78),  # 1 epoch
        },
        rates=(5e-4, 1e-3),
    ),
    # One GPU: 98 M tokens for each of the 15 runs.
    "small": Scale(
        vocabulary=8000,
        valid_share=0.01,
        arch="tupe_roberta_small",
        batch_size=256,
        updates=3000,
        lr=5e-4,
        validations=20,
        valid_steps=20,
        # The paper's 10 epochs; 2 of SST-2, which would take three quarters of the time.
        tasks={task: None for task in TASKS} | {"SST-2": Finetuning(4210)},
        rates=(1e-4, 2e-4),
        fp16=True,
    ),
}
