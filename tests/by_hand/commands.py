"""The commands that are killed, and the outputs that are compared."""

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from examples.glue import collect
from examples.shared.results import read_results, rows
from tests import ROOT, toy_data
from tests.fairseq.glue import samples
from tests.fairseq_commands import pretrain
from tests.stress.disks import digests
from tupe_fairseq.fairseq.checkpoints.reading import read_checkpoint


class Case(NamedTuple):
    """A command that can be killed.

    Attributes:
        command: returns the command for a folder.
        outcome: returns what the command made in the folder, to be compared.
    """

    command: Callable[[Path], list[str]]
    outcome: Callable[[Path], Any]


TINY = (
    *("--arch", "tupe_roberta", "--encoder-layers", "2", "--encoder-embed-dim", "32"),
    *("--encoder-ffn-embed-dim", "64", "--encoder-attention-heads", "4", "--batch-size", "4"),
    *("--task", "masked_lm", "--criterion", "masked_lm", "--tokens-per-sample", "64"),
    # With --max-update, fairseq makes one update more of a run that is killed at its end.
    *("--optimizer", "adam", "--lr", "0.001", "--max-epoch", "30", "--num-workers", "0"),
    *("--save-interval-updates", "10", "--keep-interval-updates", "1", "--no-epoch-checkpoints"),
    *("--user-dir", str(ROOT / "tupe_fairseq"), "--cpu", "--required-batch-size-multiple", "1"),
)


def training(out: Path) -> Case:
    """Training by one process."""
    data = toy_data.write_masked_lm(out / "data")
    words = (sys.executable, "-m", "fairseq_cli.train", str(data), *TINY)
    return Case(lambda folder: resumed(folder, *words), final_parameters)


def resumed(folder: Path, *command: str) -> list[str]:
    """A training that first repairs its checkpoints, since fairseq copies the last in place."""
    script = 'source "$1"; repair_checkpoints "$2"; exec "${@:3}" --save-dir "$2"'
    steps = str(ROOT / "scripts/steps.sh")
    return ["bash", "-c", script, "resume", steps, str(folder / "m"), *command]


def final_parameters(folder: Path) -> dict[str, str]:
    """Digests of the last checkpoint's parameters and of Adam's state."""
    state = read_checkpoint(folder / "m" / "checkpoint_last.pt")
    moments = {
        f"{i}.{name}": value
        for i, entry in state["last_optimizer_state"]["state"].items()
        for name, value in entry.items()
    }
    return {
        name: hashlib.sha256(torch.as_tensor(value).numpy().tobytes()).hexdigest()
        for name, value in {**state["model"], **moments}.items()
    }


def prepare(out: Path) -> Case:
    """From raw text to binarised data, with a vocabulary that is trained."""
    text = out / "raw"
    text.mkdir(parents=True, exist_ok=True)
    for number in range(4):
        lines = (f"w{i % 97} w{i % 89} w{i % (13 + number)}" for i in range(40_000))
        (text / f"{number}.txt").write_text("\n\n".join(lines))
    script = ROOT / "examples/pretraining/prepare.sh"
    words = ["bash", str(script), "--out", "data", "--sentencepiece", "60", str(text)]
    return Case(lambda _: words, lambda folder: digests(folder / "data" / "bin"))


def glue(out: Path) -> Case:
    """The task of GLUE with the most files."""
    download = samples.write(out / "download", samples.OFFICIAL)
    bpe = samples.write_tokenizer(out / "bpe", "\n".join(samples.OFFICIAL.values()))
    script = ["bash", str(samples.GLUE / "preprocess_glue.sh"), str(download), "MNLI", str(bpe)]

    def outcome(folder: Path) -> dict[str, Any]:
        return {data.name: digests(data) for data in folder.glob("glue/*-bin")}

    return Case(lambda folder: [*script, str(folder / "glue")], outcome)


def sweep(out: Path) -> Case:
    """Fine-tuning a small model on a small data set with two learning rates."""
    model = out / "pretrained" / "checkpoint_last.pt"
    if not model.exists():
        text = toy_data.write_masked_lm(out / "data")
        pretrain(text, model.parent, "--tokens-per-sample", 64, "--max-update", 20)
    data = toy_data.write_sentences(out / "sentences" / "SST-2-bin", size=128)
    (data / "task.json").write_text(
        json.dumps({"task": "SST-2", "max_positions": 64, "lowercase": True, "examples": {}})
    )
    words = [sys.executable, str(samples.GLUE / "sweep.py"), "--data", str(data.parent)]
    words += ["--models", f"toy={model}", "--tasks", "SST-2", "--rates", "1e-3", "1e-4"]
    words += ["--seeds", "1", "--overrides", "optimization.max_epoch=4"]
    words += ["dataset.batch_size=16", "lr_scheduler.warmup_updates=2", "dataset.num_workers=0"]
    return Case(lambda folder: [*words, "--out", str(folder / "sweep")], sweep_table)


def sweep_table(folder: Path) -> tuple[list[str], str]:
    """The sorted results, and the table of them."""
    found = rows(read_results(folder / "sweep"))
    found.sort(key=lambda row: row["rate"])
    return [*map(json.dumps, found)], collect.render(found)


CASES = (training, prepare, glue, sweep)
