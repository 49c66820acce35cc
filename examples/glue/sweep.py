r"""Fine-tune over learning rates, seeds, tasks and pre-trained models: one process a run.

    python -m examples.glue.sweep --data glue --out outputs/sweep \
        --models tupe_a=a/checkpoint_best.pt learned=b/checkpoint_best.pt --tasks CoLA RTE

Each run is a call of finetune.sh in OUT/MODEL/TASK/RATE/SEED. OUT/results.json has the results;
OUT/report.md, which collect.py writes, has the paper's table of them. The same command continues
with the runs that have no result yet, also after a kill or a failure.
"""

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

from examples.glue import pretrained
from examples.glue.collect import report
from examples.glue.tasks import TASKS
from examples.shared import script
from examples.shared.results import fingerprint
from examples.shared.runner import Run, arguments, runner
from tupe_fairseq import UsageError

FINETUNE = Path(__file__).with_name("finetune.sh")
RATES = (2e-5, 3e-5, 4e-5, 5e-5)
SEEDS = (1, 2, 3, 4, 5)


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--data", type=Path, required=True, help="output of preprocess_glue.sh: TASK-bin, ...")
    add("--models", nargs="+", required=True, metavar="NAME=CHECKPOINT", help="pre-trained models")
    add("--tasks", nargs="+", default=list(TASKS), metavar="TASK", help="default: all nine")
    add("--rates", nargs="+", type=float, default=RATES, help="default: 2e-5 3e-5 4e-5 5e-5")
    add("--seeds", nargs="+", type=int, default=SEEDS, metavar="SEED", help="default: 1 2 3 4 5")
    add("--keep-models", action="store_true", help="keep the best model of each run")
    add("--overrides", nargs="+", default=[], metavar="KEY=VALUE", help="of config/TASK.yaml")
    return arguments(parser, argv, "examples.glue.sweep", trains=False)


def finetuning(
    args: argparse.Namespace, folder: str, checkpoint: Path, task: str, **settings: Any
) -> list[Run]:
    """The runs that fine-tune a model on a task.

    Args:
        args: `out`, `data`, `rates`, `seeds`, `overrides`, `keep_models`.
        folder: of the model's runs, below `out`.
        checkpoint: of the pre-trained model.
        task: of GLUE.
        **settings: `model` and others, for the report.

    Raises:
        UsageError: unknown task, or a checkpoint or data that cannot be used.
    """
    if task not in TASKS:
        raise UsageError(f"--tasks has {task!r}, but the tasks are: {', '.join(TASKS)}.")
    data = args.data.absolute() / f"{task}-bin"
    checkpoint = checkpoint.absolute()
    # Read once, because it takes seconds.
    described = pretrained.overrides(data, checkpoint, args.overrides)
    used = fingerprint(checkpoint, data / "task.json", data / "input0/dict.txt")
    settings = {"part": task, "task": task, **settings, "made of": used}
    runs = []
    for rate in dict.fromkeys(args.rates):
        for seed in dict.fromkeys(args.seeds):
            name = f"{folder}/{task}/{rate:g}/{seed}"
            words = ["bash", FINETUNE, data, checkpoint, args.out.absolute() / name, *described]
            words += [f"optimization.lr=[{rate:g}]", f"common.seed={seed}", *args.overrides]
            own = {**settings, "rate": rate, "seed": seed}
            runs.append(Run(name, own, [words], partial(finish, args.keep_models)))
    return runs


def finish(keep_model: bool, folder: Path) -> dict[str, Any]:
    """The result of a run, whose model is removed."""
    found = json.loads((folder / "model/result.json").read_text())
    if not keep_model:
        (folder / "model/model.pt").unlink(missing_ok=True)
    return found


def named_checkpoints(words: list[str]) -> dict[str, Path]:
    """Parse NAME=CHECKPOINT words."""
    models: dict[str, Path] = {}
    for word in words:
        name, sign, path = word.partition("=")
        if not (name and sign and path) or "/" in name or name in models:
            told = "each must be NAME=CHECKPOINT, with a name of its own."
            raise UsageError(f"--models has {word!r}; {told}")
        models[name] = Path(path)
    return models


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    args = parse(argv)
    runs = []
    for name, checkpoint in named_checkpoints(args.models).items():
        for task in dict.fromkeys(args.tasks):
            runs += finetuning(args, name, checkpoint, task, model=name)
    with runner(args, {}, report) as execute:
        execute(runs)


if __name__ == "__main__":
    script.run(main)
