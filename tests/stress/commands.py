"""The commands that are killed, and the outputs that are compared."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from examples.glue import collect
from examples.shared.results import read_results, rows
from tests import ROOT, toy_data
from tests.fairseq_commands import pretrain
from tests.glue import samples
from tests.interop import release
from tests.stress.killing import Case
from tupe_fairseq.checkpoints.reading import read_checkpoint

TINY = (
    *("--arch", "tupe_roberta", "--encoder-layers", "2", "--encoder-embed-dim", "32"),
    *("--encoder-ffn-embed-dim", "64", "--encoder-attention-heads", "4", "--batch-size", "4"),
    *("--task", "masked_lm", "--criterion", "masked_lm", "--tokens-per-sample", "64"),
    # With --max-update, fairseq makes one update more of a run that is killed at its end.
    *("--optimizer", "adam", "--lr", "0.001", "--max-epoch", "30", "--num-workers", "0"),
    *("--save-interval-updates", "10", "--keep-interval-updates", "1", "--no-epoch-checkpoints"),
    *("--user-dir", str(ROOT / "tupe_fairseq"), "--cpu", "--required-batch-size-multiple", "1"),
)


# ---------------------------------------------------------------- training


def training(out: Path) -> Case:
    """Training by one process."""
    data = toy_data.write_masked_lm(out / "data")
    words = (sys.executable, "-m", "fairseq_cli.train", str(data), *TINY)
    return Case(lambda folder: resumed(folder, *words), final_parameters)


def ranks(out: Path) -> Case:
    """Training by two processes."""
    data = toy_data.write_masked_lm(out / "data")
    words = ("bash", str(ROOT / "scripts/train_distributed.sh"), "2", str(data), *TINY)
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
    return digests_of_tensors({**state["model"], **moments})


def digests_of_tensors(tensors: dict[str, Any]) -> dict[str, str]:
    """Digests of all tensors and numbers, by name."""
    return {
        name: hashlib.sha256(torch.as_tensor(value).numpy().tobytes()).hexdigest()
        for name, value in tensors.items()
    }


# ---------------------------------------------------------------- data


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


def digests(folder: Path) -> dict[str, str]:
    """Digests of all files but logs, by path."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".log"
    }


# ---------------------------------------------------------------- the sweep


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


# ---------------------------------------------------------------- conversion


def conversion(out: Path) -> Case:
    """Converting a checkpoint of the authors' release."""
    words = [sys.executable, str(ROOT / "scripts/convert_checkpoint.py"), "--from"]
    words += ["tupe-official", str(release.write(out / "release"))]
    return Case(
        lambda folder: [*words, "--out", str(folder / "m")],
        converted_parameters,
        converted_or_nothing,
    )


def converted_parameters(folder: Path) -> dict[str, str]:
    """Digests of a converted model."""
    return digests_of_tensors(read_checkpoint(folder / "m" / "model.pt")["model"])


def converted_or_nothing(folder: Path) -> None:
    """Fail unless the directory is complete or missing; remove it for the next call."""
    if (folder / "m").exists():
        converted_parameters(folder)
        assert (folder / "m" / "dict.txt").stat().st_size
        shutil.rmtree(folder / "m")


# ---------------------------------------------------------------- the quickstart

#: Numbers of updates in the quickstart. All end with a zero, which is removed.
UPDATES = re.compile(
    r"(--(?:max-update|total-num-update|warmup-updates|[a-z]+-interval-updates) \d+)0\b"
)
#: Defines the shell function that prints what .venv must hold to be up to date.
INSTALLED = 'source <(sed "/^setup_environment$/d" scripts/environment.sh)'


def quickstart(out: Path) -> Case:
    """The whole quickstart, with a tenth of the updates."""
    return Case(shortened, quickstart_results)


def shortened(folder: Path) -> list[str]:
    """The quickstart in a copy of the tracked files, with this environment as its .venv.

    The first call makes the copy.
    """
    copy = folder / "checkout"
    if not (copy / ".venv" / "installed").exists():
        shutil.rmtree(copy, ignore_errors=True)
        git = ["git", "ls-files", "-z"]
        files = subprocess.run(git, cwd=ROOT, capture_output=True, check=True).stdout
        for name in files.decode().split("\0")[:-1]:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
        script = copy / "scripts" / "quickstart.sh"
        script.write_text(UPDATES.sub(r"\1", script.read_text()))
        (copy / ".venv").mkdir()
        for name in ("bin", "lib", "pyvenv.cfg"):
            (copy / ".venv" / name).symlink_to(Path(sys.prefix, name))
        written = f"{INSTALLED}; wanted_installation >.venv/installed"
        subprocess.run(["bash", "-c", written], cwd=copy, check=True)
    return ["env", f"PYTHONPATH={copy}", "bash", str(copy / "scripts" / "quickstart.sh")]


def quickstart_results(folder: Path) -> list[str]:
    """Numbers of the final tables."""
    work = folder / "checkout" / ".quickstart"
    return [(work / name / f"{name}.json").read_text() for name in ("losses", "results")]


CASES = (training, ranks, prepare, glue, sweep, conversion, quickstart)
