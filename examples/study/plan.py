"""What study.py does at each scale: all its settings in one place.

tiny, by the comparison of all encodings (README.md) on a shared CPU: an update of 32 × 32 tokens
takes a core 0.1 to 0.12 s, so that 9,600 of them (9.8 M tokens) take 16 to 19 minutes, and 15 runs
on two cores 130. A fine-tuning takes a core 25 s (RTE) to 80 s (SST-2); 15 models, two rates and
five tasks on two cores: 70 minutes. small has not been run.
"""

from __future__ import annotations

from typing import NamedTuple

#: The paper's models: its name for each, and the flags for fairseq-train.
MODELS = {
    "learned": ("BERT-A", ("--position-encoding", "learned")),
    "t5": ("BERT-R", ("--position-encoding", "t5")),
    "tupe_a_tie_cls": ("TUPE-A tie-cls", ("--position-encoding", "tupe_a", "--tie-cls")),
    "tupe_a": ("TUPE-A", ("--position-encoding", "tupe_a")),
    "tupe_r": ("TUPE-R", ("--position-encoding", "tupe_r")),
}
#: What the others are compared with.
BASELINE = "learned"
#: Of GLUE: those that are small enough.
TASKS = ("CoLA", "SST-2", "MRPC", "STS-B", "RTE")


class Finetuning(NamedTuple):
    """How long a task is trained on.

    Attributes:
        updates: of `batch` examples.
        batch: examples an update.
    """

    updates: int
    batch: int = 32


class Scale(NamedTuple):
    """One row of the table.

    Attributes:
        vocabulary: symbols of the sentencepiece model, trained on the text in lower case.
        valid_share: of the documents, held out.
        arch: of all models.
        batch_size: sequences an update.
        updates: of pre-training.
        lr: highest learning rate of pre-training.
        rounds: in which the models take turns.
        validations: in each round.
        valid_steps: batches that are validated on, at most.
        fp16: on a GPU.
        flags: further ones for fairseq-train.
        seeds: of pre-training.
        tasks: of GLUE, and how long each is trained on; None: as its YAML file has it.
        rates: learning rates of fine-tuning.
        finetuning_seeds: for each pre-trained model.
        tokens_per_sample: length of a sequence.
        glue_tokens: length of the examples of GLUE at most.
    """

    vocabulary: int
    valid_share: float
    arch: str
    batch_size: int
    updates: int
    lr: float
    rounds: int
    validations: int
    valid_steps: int
    tasks: dict[str, Finetuning | None]
    rates: tuple[str, ...]
    fp16: bool = False
    flags: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (1, 2, 3)
    finetuning_seeds: tuple[int, ...] = (1,)
    tokens_per_sample: int = 128
    glue_tokens: int = 128


SCALES = {
    # To see that all works: a minute for two models, one seed and one task.
    "smoke": Scale(
        vocabulary=100,
        valid_share=0.2,
        arch="tupe_roberta_tiny",
        batch_size=4,
        updates=4,
        lr=1e-3,
        rounds=1,
        validations=2,
        valid_steps=2,
        tasks={task: Finetuning(3, 4) for task in TASKS},
        rates=("1e-3",),
        flags=("--encoder-layers", "2", "--encoder-embed-dim", "32"),
    ),
    # Two CPU cores, 3.5 hours. In short sequences `learned` uses order after 5 M tokens.
    "tiny": Scale(
        vocabulary=1000,
        valid_share=0.01,
        arch="tupe_roberta_tiny",
        tokens_per_sample=32,
        batch_size=32,
        updates=9600,
        lr=1e-3,
        rounds=4,
        validations=4,
        valid_steps=50,
        # Longer than the sequences: these positions are first seen in fine-tuning.
        glue_tokens=64,
        tasks={
            "CoLA": Finetuning(400),  # 1.5 epochs
            "SST-2": Finetuning(500),  # a quarter of an epoch
            "MRPC": Finetuning(115),  # 1 epoch
            "STS-B": Finetuning(270),  # 1.5 epochs
            "RTE": Finetuning(78),  # 1 epoch
        },
        rates=("5e-4", "1e-3"),
    ),
    # One GPU, aimed at an hour of pre-training for all 15 runs: 98 M tokens each.
    "small": Scale(
        vocabulary=8000,
        valid_share=0.01,
        arch="tupe_roberta_small",
        batch_size=256,
        updates=3000,
        lr=5e-4,
        rounds=2,
        validations=10,
        valid_steps=20,
        # The paper's 10 epochs; 2 of SST-2, which would take three quarters of the time.
        tasks={task: None for task in TASKS} | {"SST-2": Finetuning(4210)},
        rates=("1e-4", "2e-4"),
        fp16=True,
    ),
}
