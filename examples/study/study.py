"""The paper's study at a scale that fits the machine: pre-training, GLUE, learned positions.

    python -m examples.study.study --text wiki/AA --glue glue_data --out outputs/study --workers 2

--text takes the text as examples/pretraining/prepare.sh does, --glue the folder of GLUE as
examples/glue/preprocess_glue.sh does; plan.py has the settings of each scale. OUT gets

    data/, glue-data/     the text and the tasks, binarised
    pretraining/          MODEL/SEED: input of TupeRobertaModel.from_pretrained, log.txt
    glue/                 MODEL/SEED/TASK/RATE/SEED: fine-tunings
    results.json          all numbers
    report.md             the report, with its figures (report.py)

After an interruption the same command continues.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from examples.glue.readers import read_split
from examples.glue.sweep import finetuning
from examples.glue.tasks import TASKS
from examples.shared import script
from examples.shared.frequencies import context_free_loss
from examples.shared.markdown import ROOT
from examples.shared.runner import Run, Runner, arguments, runner
from examples.study.measures import without_model
from examples.study.plan import BASELINE, MODELS, SCALES, Finetuning
from examples.study.report import report
from examples.study.training import Recipe, training_run
from tupe_fairseq import UsageError

GLUE = ROOT / "examples/glue/preprocess_glue.sh"
PREPARE = ROOT / "examples/pretraining/prepare.sh"


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line, and add the plan of its scale."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("--text", nargs="+", type=Path, required=True, help="text files or folders of them")
    add("--glue", type=Path, required=True, help="the GLUE download")
    add("--scale", choices=SCALES, default="tiny", help="size, see plan.py (default: tiny)")
    add("--models", nargs="+", choices=MODELS, default=list(MODELS), help="default: all")
    add("--seeds", nargs="+", type=int, help="seeds of pre-training (default: those of the scale)")
    add("--tasks", nargs="+", help="tasks of GLUE (default: those of the scale)")
    args = arguments(parser, argv, "examples.study.study")
    args.plan = plan = SCALES[args.scale]
    args.seeds = args.seeds or list(plan.seeds)
    args.tasks = args.tasks or list(plan.tasks)
    if unknown := [task for task in args.tasks if task not in plan.tasks]:
        raise UsageError(f"--tasks has {unknown[0]!r}; the scale has {', '.join(plan.tasks)}.")
    for name, paths in (("--text", args.text), ("--glue", [args.glue])):
        if missing := [path for path in paths if not path.exists()]:
            raise UsageError(f"{name} is {str(missing[0])!r}, but there is no such path.")
    args.data = args.out / "data/bin"
    return args


def text_run(args: argparse.Namespace) -> Run:
    """Text -> data/bin."""
    plan = args.plan
    flags = ("--sentencepiece", plan.vocabulary, "--valid-share", plan.valid_share)
    texts = [path.absolute() for path in args.text]
    command = ["bash", PREPARE, "--out", args.data.absolute().parent, *flags, *texts]

    def result(folder: Path) -> dict[str, Any]:
        return {"context_free": context_free_loss(args.data, plan.tokens_per_sample)}

    return Run("prepare/text", {"part": "text"}, [command], result)


def task_run(args: argparse.Namespace, task: str) -> Run:
    """The GLUE download -> glue-data/TASK-bin."""
    where = (args.glue.absolute(), task, args.data.absolute(), args.out.absolute() / "glue-data")
    command = ["bash", GLUE, *where, "--max-positions", args.plan.glue_tokens]

    def result(folder: Path) -> dict[str, Any]:
        splits = [split for split in TASKS[task].splits if split.name in ("train", "valid")]
        read = (read_split(args.glue, TASKS[task], split) for split in splits)
        train, valid = ([example.label for example in part.examples] for part in read)
        constant = without_model(TASKS[task].metric, train, valid)
        return {"examples": len(valid), "constant": constant}

    return Run(f"prepare/{task}", {"part": "GLUE data", "task": task}, [command], result)


def recipe_of(args: argparse.Namespace) -> Recipe:
    """How all models are pre-trained."""
    plan = args.plan
    positions = max(plan.tokens_per_sample, plan.glue_tokens)
    flags = ["--max-positions", str(positions), "--max-valid-steps", str(plan.valid_steps)]
    flags += [*plan.flags, *(["--fp16"] if plan.fp16 and torch.cuda.is_available() else [])]
    shared = {key: value for key, value in plan._asdict().items() if key in Recipe._fields}
    return Recipe(**{**shared, "flags": flags})


def pretraining_runs(args: argparse.Namespace) -> list[Run]:
    """The runs that pre-train the models."""
    runs = []
    for seed in args.seeds:
        for model in args.models:
            settings = {"part": "pre-training", "model": model}
            name, encoding = f"pretraining/{model}/{seed}", MODELS[model][1]
            runs.append(training_run(args, name, recipe_of(args), encoding, seed, **settings))
    return runs


def finetuning_runs(args: argparse.Namespace, trained: dict[str, Path]) -> list[Run]:
    """The runs that fine-tune the trained models on the tasks that are prepared."""
    plan, runs = args.plan, []
    own = {"rates": plan.rates, "seeds": plan.finetuning_seeds, "keep_models": False}
    for task in args.tasks:
        if not (args.out / f"glue-data/{task}-bin").exists():
            continue
        given = {**own, "data": args.out / "glue-data", "overrides": overrides(plan.tasks[task])}
        for name, folder in trained.items():
            model, seed = name.split("/")
            runs += finetuning(
                argparse.Namespace(**given, out=args.out),
                *(f"glue/{name}", folder / "checkpoint_last.pt", task),
                **{"model": model, "pretrained": int(seed)},
            )
    return runs


def overrides(finetuning: Finetuning | None) -> list[str]:
    """Overrides of a task's YAML file; 6 % of the updates are warm-up, as in the paper."""
    if finetuning is None:
        return []
    changed = {
        "optimization.max_update": finetuning.updates,
        "lr_scheduler.warmup_updates": max(1, round(0.06 * finetuning.updates)),
        "dataset.batch_size": finetuning.batch,
        "dataset.num_workers": 0,
    }
    return [f"{key}={value}" for key, value in changed.items()]


def position_runs(args: argparse.Namespace, trained: dict[str, Path]) -> list[Run]:
    """The runs that draw what the models of the first seed have learned about positions."""
    runs, seed, out = [], args.seeds[0], args.out.absolute()
    for model in args.models:
        if (model == BASELINE or model.startswith("tupe")) and f"{model}/{seed}" in trained:
            words = [args.data.absolute(), out, trained[f"{model}/{seed}"], model]
            words += [f"seed {seed}", args.plan.tokens_per_sample]
            command = [sys.executable, "-m", "examples.study.figures", *words]
            settings = {"part": "positions", "model": model, "seed": seed}
            runs.append(Run(f"positions/{model}/{seed}", settings, [command], drawn))
    return runs


def drawn(folder: Path) -> dict[str, Any]:
    """What figures.py has written beside the model."""
    model = folder.parents[2] / "pretraining" / folder.parent.name / folder.name
    return json.loads((model / "positions.json").read_text())


def run_all(args: argparse.Namespace, execute: Runner) -> None:
    """All stages; those after a failed preparation are left out."""
    execute([text_run(args)], always=True)
    if execute.failed:
        return
    runs = pretraining_runs(args)
    execute(runs)
    trained = {
        run.name.partition("/")[2]: args.out.absolute() / run.name
        for run in runs
        if execute.is_done(run.name)
    }
    execute(position_runs(args, trained))
    execute([task_run(args, task) for task in args.tasks if (args.glue / task).is_dir()])
    execute(finetuning_runs(args, trained))


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    args = parse(argv)
    with runner(args, {"scale": args.scale, **args.plan._asdict()}, report) as execute:
        run_all(args, execute)


if __name__ == "__main__":
    script.run(main)
